"""Serves a playground on this machine: the files of one folder, to this machine only, for reading only."""

import os
import shutil
import socket
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from onlstm.errors import UserError

ADDRESS = "127.0.0.1"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_SECONDS = 20
"""Without a byte from a client before its connection is closed."""


class Server(ThreadingHTTPServer):
    """A thread for each connection, so that a slow client keeps nobody waiting."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path, port: int = 0) -> None:
        """Listen on a port of the loopback address; 0 takes a free one."""
        self.folder = folder.resolve()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "a number from 0 to 65535 is needed"
            raise UserError(f"port {port}: {why}") from None

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def server_bind(self) -> None:
        """Bind without asking for the name of this machine, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.socket.getsockname()[:2]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version, protocol_version = "onlstm", "", "HTTP/1.1"
    timeout = _SECONDS

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        """Send the file that is asked for, unless the question came by another name of this machine."""
        if self.headers.get("Host", "").rpartition(":")[0] not in (ADDRESS, "localhost"):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return
        path = self._file()
        if path is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        kind = f"{_TYPES[path.suffix]}; charset=utf-8" if path.suffix in _TYPES else "application/octet-stream"
        with path.open("rb") as file:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            if body:
                shutil.copyfileobj(file, self.wfile)  # piece by piece: many may ask for a large file at once

    def _file(self) -> Path | None:
        """Return the file of the folder that the address names: one in the folder itself, and no link."""
        name = unquote(urlsplit(self.path).path).removeprefix("/") or "index.html"
        path = next((path for path in self.server.folder.iterdir() if path.name == name), None)
        return path if path and path.is_file() and not path.is_symlink() else None

    def end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""
