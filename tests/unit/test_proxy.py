"""The proxy of the fault harness: it forwards frames, finds EndTxn requests, and delivers held ones late."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from app.demo.broker import free_ports
from tests.chaos.proxy import EndTxn, Proxy, end_txn


def frame(api: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", api, 1, 7, 6) + b"winnow" + body


def ending(*, committed: bool) -> bytes:
    return frame(26, struct.pack(">h", 4) + b"a/b/" + struct.pack(">qh?", 42, 3, committed))


def test_an_end_txn_is_understood() -> None:
    """Whose transaction, which epoch, commit or abort."""
    assert EndTxn("a/b/", 42, 3, committed=True) == end_txn(ending(committed=True))
    assert end_txn(frame(0)) is None


class Server:
    """Takes frames and answers each with its own first byte."""

    def __init__(self) -> None:
        self.frames: Queue[bytes] = Queue()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                self.frames.put(stream.read(int.from_bytes(size)))
                connection.sendall(b"!")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def send(connection: socket.socket, request: bytes) -> None:
    connection.sendall(len(request).to_bytes(4) + request)


def test_frames_pass(server: Server) -> None:
    """Requests and answers go through unchanged."""
    (port,) = free_ports(1)

    with Proxy({port: server.port}), socket.create_connection(("127.0.0.1", port)) as client:
        send(client, frame(0, b"x" * 100_000))

        assert b"!" == client.recv(1)
        assert frame(0, b"x" * 100_000) == server.frames.get(timeout=5)


def test_a_held_commit_comes_late(server: Server) -> None:
    """The client loses its connection at once; the broker gets the request all the same, afterwards."""
    (port,) = free_ports(1)
    held: Queue[EndTxn] = Queue()

    with Proxy({port: server.port}, lambda request, _: held.put(request)) as proxy:
        proxy.hold_seconds = lambda: 0.2
        with socket.create_connection(("127.0.0.1", port)) as client:
            send(client, ending(committed=True))

            assert b"" == client.recv(1)
            assert 3 == held.get(timeout=5).epoch
            assert ending(committed=True) == server.frames.get(timeout=5)


def test_an_abort_is_not_held(server: Server) -> None:
    """Only commits are."""
    (port,) = free_ports(1)

    with Proxy({port: server.port}) as proxy, socket.create_connection(("127.0.0.1", port)) as client:
        proxy.hold_seconds = lambda: 60.0
        send(client, ending(committed=False))

        assert b"!" == client.recv(1)


def test_connections_are_cut(server: Server) -> None:
    """A client notices at once."""
    (port,) = free_ports(1)

    with Proxy({port: server.port}) as proxy, socket.create_connection(("127.0.0.1", port)) as client:
        send(client, frame(0))
        client.recv(1)
        proxy.cut()

        assert b"" == client.recv(1)
