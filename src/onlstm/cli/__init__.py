"""The `onlstm` command: thin commands over the library and the paper's experiments, one file for each noun."""
