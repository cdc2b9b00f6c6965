"""The server: one folder, for reading, for this machine only, and nobody waits for a slow client."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest

from onlstm.errors import UserError
from onlstm.playground.server import Server


@pytest.fixture(scope="module")
def server(serve, tmp_path_factory):
    root = tmp_path_factory.mktemp("server")
    (root / "secret.txt").write_text("secret")
    folder = root / "page"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file.js").write_text("inner")
    (folder / "index.html").write_text("<p>é</p>")
    (folder / "a.bin").write_bytes(bytes(300_000))
    (folder / "link.txt").symlink_to(root / "secret.txt")
    with serve(folder) as running:
        yield running


def asked(server, path, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response, content


def test_it_serves_the_folder_to_this_machine(server):
    assert server.server_address[0] == "127.0.0.1"
    response, content = asked(server, "/")
    assert (response.status, content.decode()) == (200, "<p>é</p>")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert asked(server, "/a.bin?x#y")[0].headers["Content-Length"] == "300000"
    assert asked(server, "/", "HEAD")[1] == b""


@pytest.mark.parametrize(
    "path",
    [
        *("/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/....//secret.txt", "//secret.txt", "/.."),
        *("/link.txt", "/inner", "/inner/file.js", "/%00", "/index.html%00.js", "/etc/passwd", "/C:%5c", "/nosuch"),
    ],
)
def test_nothing_but_the_folder(server, path):
    response, content = asked(server, path)
    assert response.status == 404
    assert b"secret" not in content
    assert b"inner\n" not in content


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "SPAM"])
def test_reading_is_all_there_is(server, method):
    assert asked(server, "/", method)[0].status == 501


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:1", ""])
def test_it_answers_to_its_own_name_only(server, host):
    assert asked(server, "/", Host=host)[0].status == 421


def test_a_hundred_clients_and_slow_ones_do_not_wait_for_each_other(server):
    slow = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(30)]
    for client in slow:
        client.sendall(b"GET /a.bin HTTP/1.1\r\nHost: 127.0")  # and no more
    started = time.perf_counter()
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda _: asked(server, "/a.bin"), range(100)))
    assert time.perf_counter() - started < 8
    assert {(response.status, len(content)) for response, content in answers} == {(200, 300_000)}
    for client in slow:
        client.close()


def test_a_port_that_is_taken_is_named(server):
    with pytest.raises(UserError, match=f"port {server.server_port}: Address already in use"):
        Server(server.folder, server.server_port)
