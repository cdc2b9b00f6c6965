"""The `onlstm` command. Nothing heavy is imported before a command needs it: help and version never load torch."""

from cyclopts import App

from onlstm import __version__

app = App(name="onlstm", version=f"onlstm {__version__}", help="Recurrent networks that find syntax by themselves.")


def main() -> None:
    """Run the command line."""
    app()
