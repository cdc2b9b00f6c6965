"""`python -m onlstm` is the `onlstm` command."""

from onlstm.cli.main import main

if __name__ == "__main__":
    main()
