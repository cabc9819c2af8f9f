"""The proxy of the fault harness forwards frames, recognises requests that end a transaction, and delivers held ones late."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from app.embedded.broker import HeldPorts
from tests.chaos.proxy import END_TXN, TXN_OFFSET_COMMIT, Ending, Proxy, ending
from tests.support.waiting import PATIENCE


def frame(api: int, body: bytes = b"", version: int = 1) -> bytes:
    return struct.pack(">hhih", api, version, 7, 6) + b"winnow" + body


API_VERSIONS = struct.pack(">h", 18)
"""The first request of a real client. One that looks for a lost broker may find our port instead."""
END = frame(END_TXN, struct.pack(">h", 4) + b"a/b/" + struct.pack(">qh?", 42, 3, True))


def test_requests_that_end_a_transaction_are_recognised() -> None:
    """The proxy reads their kind and transactional id, in the plain and in the compact encoding."""
    assert Ending(END_TXN, "a/b/") == ending(END)
    assert Ending(TXN_OFFSET_COMMIT, "a/b/") == ending(frame(TXN_OFFSET_COMMIT, b"\0\5a/b/", version=3))
    assert ending(frame(0)) is None


class FrameServer:
    """Takes frames and answers each with one byte."""

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
        # A proxy that stops resets its connections.
        with contextlib.suppress(ConnectionError), connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                request = stream.read(int.from_bytes(size))
                if request[:2] != API_VERSIONS:
                    self.frames.put(request)
                connection.sendall(b"!")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def server() -> Iterator[FrameServer]:
    server = FrameServer()
    yield server
    server.close()


def send(connection: socket.socket, request: bytes) -> None:
    connection.sendall(len(request).to_bytes(4) + request)


@pytest.fixture
def port() -> Iterator[int]:
    """Return a port for the proxy."""
    held = HeldPorts(1)
    yield held[0]
    del held


def test_frames_pass(server: FrameServer, port: int) -> None:
    """Requests and answers pass unchanged."""
    with Proxy({port: server.port}), socket.create_connection(("127.0.0.1", port)) as client:
        send(client, frame(0, b"x" * 100_000))

        assert b"!" == client.recv(1)
        assert frame(0, b"x" * 100_000) == server.frames.get(timeout=PATIENCE)


def test_a_held_commit_comes_late(server: FrameServer, port: int) -> None:
    """The client loses its connection at once; the broker still gets the request, later."""
    held: Queue[Ending] = Queue()

    with Proxy({port: server.port}, lambda request, _: held.put(request)) as proxy:
        proxy.hold_seconds = lambda api: 0.2
        with socket.create_connection(("127.0.0.1", port)) as client:
            send(client, END)

            assert b"" == client.recv(1)
            assert Ending(END_TXN, "a/b/") == held.get(timeout=PATIENCE)
            assert END == server.frames.get(timeout=PATIENCE)


def test_only_what_is_asked_for_is_held(server: FrameServer, port: int) -> None:
    """A request of another kind passes."""
    with Proxy({port: server.port}) as proxy, socket.create_connection(("127.0.0.1", port)) as client:
        proxy.hold_seconds = lambda api: 60.0 if api == TXN_OFFSET_COMMIT else None
        send(client, END)

        assert b"!" == client.recv(1)


def test_connections_are_cut(server: FrameServer, port: int) -> None:
    """A client notices the cut at once."""
    with Proxy({port: server.port}) as proxy, socket.create_connection(("127.0.0.1", port)) as client:
        send(client, frame(0))
        client.recv(1)
        proxy.cut()

        assert b"" == client.recv(1)
