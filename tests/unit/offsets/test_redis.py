"""What Redis may answer: which of its errors pass by themselves, and what an older server does not know."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from app.errors import NotUsable, Transient, Unreachable
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from app.offsets.redis import RedisOffsets
from tests.support.waiting import PATIENCE

RAW = Partition("raw", 0)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("LOADING Redis is loading the dataset in memory", Unreachable),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Unreachable),
        ("CLUSTERDOWN The cluster is down", Unreachable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Unreachable),
        ("OOM command not allowed when used memory > 'maxmemory'.", Unreachable),
        ("NOREPLICAS Not enough good replicas to write.", Unreachable),
        ("MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist", Unreachable),
        ("BUSY Redis is busy running a script.", Unreachable),
        ("ERR unknown command 'HMGET'", NotUsable),
    ],
)
def test_an_outage_is_no_mistake(answer: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage is waited for; the others need an operator. The client removes some codes from the text."""
    store = RedisOffsets(StoreContext("group", {}), url="redis://nowhere")

    def refuse(*_: object) -> None:
        raise redis.connection.DefaultParser.parse_error(answer)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(redis.Redis, "hmget", refuse)

    with pytest.raises(error, match=answer.partition(" ")[2]):
        store.load([RAW], stable=True)


Answer = Callable[[bytes], bytes]
Serve = Callable[[Answer], RedisOffsets]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Open a store whose server gives an answer of its own."""
    monkeypatch.setattr("app.offsets.redis.SECONDS", PATIENCE)
    servers = list[socketserver.ThreadingTCPServer]()

    def serve(answer: Answer) -> RedisOffsets:
        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while asked := self.request.recv(65_536):
                    self.request.sendall(answer(asked))

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection)
        server.daemon_threads = True  # one may still read from a store that a failed test has not closed
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return RedisOffsets(StoreContext("group", {}), url=f"redis://127.0.0.1:{server.server_address[1]}")

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_server_that_knows_only_the_older_protocol(served: Serve) -> None:
    """Redis 5, and proxies that speak RESP2, refuse the command that the client begins with by default."""

    def old(asked: bytes) -> bytes:
        if b"HMGET" in asked:
            return b"*2\r\n$2\r\n42\r\n$1\r\nm\r\n"
        return b"-ERR unknown command\r\n" * asked.count(b"*")

    store = served(old)

    assert {RAW: CommittedOffset(42, "m")} == store.load([RAW], stable=True)
    store.close()


def test_a_number_that_another_tool_has_set(served: Serve) -> None:
    """The metadata beside it is that of another offset: `HSET` changes one field."""
    asked = list[bytes]()

    def answer(request: bytes) -> bytes:
        asked.append(request)
        return b"*2\r\n$2\r\n42\r\n$7\r\nm at=41\r\n" if b"HMGET" in request else b"$-1\r\n"

    store = served(answer)
    store.save(RAW, 41, "m")
    store.reset(RAW, 41, "n")

    assert all(metadata in b"".join(asked) for metadata in (b"m at=41", b"n at=41"))
    assert {RAW: CommittedOffset(42)} == store.load([RAW], stable=True)
    store.close()


READ_ONLY = b"READONLY You can't write against a read only replica."


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("reset", READ_ONLY),
        ("save", READ_ONLY + b" script: f1, on @user_script:8."),
        ("save", b"ERR Error running script (call to f1): @user_script:8: @user_script: 8: -" + READ_ONLY),
    ],
    ids=["command", "script", "script before Redis 7"],
)
def test_a_server_that_a_fail_over_has_demoted(change: str, said: bytes, served: Serve) -> None:
    """Its address may lead to its successor, which only a new connection reaches."""
    asked = list[bytes]()

    def answer(request: bytes) -> bytes:
        asked.append(request)
        return b"-%b\r\n" % said * request.count(b"*")

    store = served(answer)
    for _ in range(2):
        with pytest.raises(Transient, match="read only replica"):
            getattr(store, change)(RAW, 1, "")

    assert 2 == b"".join(asked).count(b"LIB-NAME"), "what each connection begins with"
    store.close()


def test_a_cluster_is_not_supported(served: Serve) -> None:
    """A cluster answers whoever asks the wrong server where the key is."""
    store = served(lambda asked: b"-MOVED 1234 127.0.0.1:7001\r\n" * asked.count(b"*"))

    with pytest.raises(NotUsable, match="Redis Cluster, which is not supported"):
        store.load([RAW], stable=True)
    store.close()


def test_a_server_that_is_not_redis(served: Serve) -> None:
    """The port of another service is a mistake of the configuration."""
    store = served(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with pytest.raises(NotUsable, match="HTTP"):
        store.load([RAW], stable=True)
    store.close()
