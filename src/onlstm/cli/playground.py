"""The command playground: a page that runs a model in the browser, written to a folder or served on this machine."""

import tempfile
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onlstm.cli.console import notice
from onlstm.cli.main import app
from onlstm.errors import UserError
from onlstm.models import DEFAULT, TREES, is_run, locate


@app.command
def playground(
    *runs: Annotated[
        str, Parameter(name="RUN", help=f"Run folders or bundled models (default: {DEFAULT}, and the grammar {TREES}).")
    ],
    out: Annotated[
        Path | None, Parameter(help="Folder to write the page to, for any file host, instead of serving it.")
    ] = None,
    port: Annotated[int, Parameter(help="Port of this machine to serve the page on; 0: a free one.")] = 0,
    no_browser: Annotated[bool, Parameter(help="Do not open the browser.")] = False,
) -> None:
    """Watch a network find syntax: a page that runs a model in the browser, word by word.

    Type a sentence and see its tree, distances, master gates, surprisals and likely next words; step through time,
    compare models, layers and decoders, paste a gold tree. The page is served on 127.0.0.1 until Ctrl-C, or written to
    a folder for any web host. It sends nothing anywhere.
    """
    names = list(dict.fromkeys(runs)) or [DEFAULT, *([TREES] if _is_here(TREES) else [])]
    for name in names:
        if not is_run(name):
            raise UserError(f"{name:.60}: no such run; name a run folder, {DEFAULT} or {TREES}")
    from onlstm.playground.export import write

    if out:
        written = write(names, out)
        notice(f"{out}: {', '.join(written.models)}; {written.bytes / 1e6:.1f} MB, ready for any web host")
        return
    from onlstm.playground.server import Server

    with (
        tempfile.TemporaryDirectory(prefix="onlstm-playground-") as folder,
        Server(Path(folder), port) as server,  # before the work: the port may be taken
    ):
        write(names, folder)
        notice(f"{server.url} (Ctrl-C stops)")
        if not no_browser:
            webbrowser.open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _is_here(name: str) -> bool:
    """Return whether a model is in the box of this installation."""
    try:
        return locate(name).is_dir()
    except UserError:
        return False
