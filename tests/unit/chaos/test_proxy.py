"""The proxy of the fault harness forwards frames, recognises requests, and does with them what rules say."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from app.embedded.broker import HeldPorts
from tests.chaos.proxy import (
    BROKERS,
    END_TXN,
    NO_NODE,
    PRODUCE,
    SERVICE,
    TXN_OFFSET_COMMIT,
    WRITE_MARKERS,
    Connection,
    Fate,
    Packet,
    Proxy,
    Route,
    Rule,
    What,
)
from tests.support.waiting import PATIENCE

METADATA = 3


def frame(api: int, body: bytes = b"", version: int = 1, client: bytes = b"winnow") -> bytes:
    return struct.pack(">hhih", api, version, 7, len(client)) + client + body


API_VERSIONS = struct.pack(">h", 18)
"""The first request of a real client. One that looks for a lost broker may find our port instead."""
END = frame(END_TXN, struct.pack(">h", 4) + b"a/b/" + struct.pack(">qh?", 42, 3, True))


CLIENT = 4711
"""A port that nobody looks at."""


def request(frame: bytes, listener: str = SERVICE) -> Packet:
    return Connection(Route(CLIENT, 3, listener)).request(frame)


def test_requests_of_a_transaction_are_recognised() -> None:
    """The proxy reads their kind and transactional id, in the plain and in the compact encoding."""
    assert Packet(SERVICE, NO_NODE, 3, END) == request(END)
    assert (END_TXN, "a/b/") == (request(END).api, request(END).transactional_id)
    assert "a/b/" == request(frame(TXN_OFFSET_COMMIT, b"\0\5a/b/", version=3)).transactional_id
    assert "" == request(frame(PRODUCE, b"\xff\xff", version=3)).transactional_id
    assert "" == request(frame(METADATA)).transactional_id


@pytest.mark.parametrize(
    ("name", "node"),
    [
        (b"broker-2-fetcher-0", 2),
        (b"broker-12-txn-marker-sender", 12),
        (b"AddPartitionsManager-client-1", 1),
        (b"raft-client-3", 3),
        (b"1", 1),
        (b"rdkafka", NO_NODE),
    ],
)
def test_brokers_are_known_by_their_names(name: bytes, node: int) -> None:
    """On their own listeners brokers say who they are; the answers go to whom asked."""
    connection = Connection(Route(CLIENT, 3, BROKERS))

    assert node == connection.request(frame(WRITE_MARKERS, client=name)).sender
    assert Packet(BROKERS, 3, node) == connection.answer
    assert NO_NODE == request(frame(METADATA, client=name)).sender


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


@pytest.fixture
def proxy(server: FrameServer, port: int) -> Iterator[Proxy]:
    """Return a proxy in front of node 3."""
    with Proxy({port: Route(server.port, 3)}) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy, port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port)) as client:
        yield client


def always(what: What, seconds: float = 0.0, api: int = END_TXN) -> Rule:
    return lambda packet: Fate(what, seconds) if packet.api == api else None


def test_frames_pass(server: FrameServer, client: socket.socket) -> None:
    """Requests and answers pass unchanged."""
    send(client, frame(METADATA, b"x" * 100_000))

    assert b"!" == client.recv(1)
    assert frame(METADATA, b"x" * 100_000) == server.frames.get(timeout=PATIENCE)


def test_a_held_commit_comes_late(server: FrameServer, port: int) -> None:
    """The client loses its connection at once; the broker still gets the request, later."""
    held: Queue[Packet] = Queue()

    with (
        Proxy({port: Route(server.port)}, lambda request, _: held.put(request)) as proxy,
        proxy.rule(always(What.HELD, 0.2)),
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        send(client, END)

        assert b"" == client.recv(1)
        assert "a/b/" == held.get(timeout=PATIENCE).transactional_id
        assert END == server.frames.get(timeout=PATIENCE)
        assert {END_TXN: 1} == proxy.held


def test_only_what_is_asked_for_is_held(proxy: Proxy, client: socket.socket) -> None:
    """A request of another kind passes."""
    with proxy.rule(always(What.HELD, 60.0, TXN_OFFSET_COMMIT)):
        send(client, END)

        assert b"!" == client.recv(1)


def test_the_hardest_rule_wins_and_ends_with_its_block(proxy: Proxy, client: socket.socket) -> None:
    """Of two rules for a request, the one that cuts its connection counts; a rule that has gone does nothing."""
    with proxy.rule(always(What.DROPPED)):
        pass
    send(client, END)
    assert b"!" == client.recv(1)

    with proxy.rule(always(What.RESET)), proxy.rule(always(What.DELAYED, 60.0)):
        send(client, END)

        assert b"" == client.recv(1)


def test_what_is_stalled_comes_when_the_rule_has_gone(server: FrameServer, proxy: Proxy, client: socket.socket) -> None:
    """A request that waited reaches the broker unchanged, before the next one."""
    waits = threading.Event()

    def stall(packet: Packet) -> Fate | None:
        waits.set()
        return Fate(What.STALLED)

    with proxy.rule(stall):
        send(client, END)
        send(client, frame(METADATA))
        assert waits.wait(PATIENCE)
        assert server.frames.empty()

    assert [END, frame(METADATA)] == [server.frames.get(timeout=PATIENCE) for _ in range(2)]


def test_answers_are_dropped(server: FrameServer, proxy: Proxy, client: socket.socket) -> None:
    """One direction may be cut: the broker gets the request, the client gets no answer, and then its connection ends."""
    answered = threading.Event()

    def is_answer(packet: Packet) -> bool:
        if packet.sender == 3:
            answered.set()
        return packet.sender == 3

    with proxy.dropping(is_answer):
        send(client, END)

        assert END == server.frames.get(timeout=PATIENCE)
        assert answered.wait(PATIENCE)

    assert b"" == client.recv(1)


def test_connections_are_cut(proxy: Proxy, client: socket.socket) -> None:
    """A client notices the cut at once; those that are not meant go on."""
    proxy.cut(lambda packet: packet.listener == BROKERS)
    send(client, frame(METADATA))
    assert b"!" == client.recv(1)

    proxy.cut()

    assert b"" == client.recv(1)
