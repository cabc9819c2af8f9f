"""The client of ZooKeeper, which threads share, and which is replaced when its server does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError

from app.errors import Unreachable
from app.model import Partition
from app.offsets import zookeeper
from app.offsets.contract import StoreContext
from app.offsets.zookeeper import ZooKeeperOffsets
from tests.support.waiting import PATIENCE

RAW, LATE = Partition("raw", 0), Partition("late", 0)


class Answer:
    """The result of a request, or whether a client is connected."""

    def __init__(self, give: Callable[[], Any]) -> None:
        self._give = give

    def get(self, **_: float) -> Any:
        return self._give()

    def wait(self, _seconds: float) -> Any:
        return self._give()


class Client:
    """A client whose connection and answers a test decides."""

    def __init__(self, connect: Callable[[], bool], answer: Callable[[Client, str], Any]) -> None:
        self._connect = connect
        self._answer = answer

    def start_async(self) -> Answer:
        return Answer(self._connect)

    def get_async(self, path: str) -> Answer:
        return Answer(lambda: self._answer(self, path))

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


Made = Callable[..., tuple[ZooKeeperOffsets, list[Client]]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Open a store, and return it with the clients that it makes."""

    def make(**decides: Any) -> tuple[ZooKeeperOffsets, list[Client]]:
        clients = list[Client]()

        def client(*_: object, **__: object) -> Client:
            clients.append(Client(**decides))
            return clients[-1]

        monkeypatch.setattr(zookeeper, "KazooClient", client)
        return ZooKeeperOffsets(StoreContext("g", {}), hosts="nowhere"), clients

    return make


def loads(store: ZooKeeperOffsets, partition: Partition) -> threading.Thread:
    def load() -> None:
        with suppress(Unreachable):
            store.load([partition], stable=True)

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    return thread


def test_a_late_failure_leaves_the_next_client_alone(made: Made) -> None:
    """Two threads lose a server: the second drops no client that a third one uses by then."""
    asked, fails = threading.Event(), threading.Event()

    def answer(client: Client, path: str) -> Any:
        if client is not clients[0]:
            raise NoNodeError
        if LATE.topic in path:
            asked.set()
            assert fails.wait(PATIENCE)
        raise ConnectionLoss

    store, clients = made(connect=lambda: True, answer=answer)
    late = loads(store, LATE)
    assert asked.wait(PATIENCE)
    with pytest.raises(Unreachable):
        store.load([RAW], stable=True)
    assert {} == store.load([RAW], stable=True)

    fails.set()
    late.join(PATIENCE)

    assert {} == store.load([RAW], stable=True)
    assert len(clients) == 2


def test_threads_wait_together_for_a_connection(made: Made) -> None:
    """Eight commits that waited one after the other would take longer than the watchdog allows."""
    both = threading.Barrier(2)

    def connect() -> bool:
        both.wait(PATIENCE)
        return False

    store, clients = made(connect=connect, answer=lambda *_: None)

    for thread in [loads(store, RAW) for _ in range(2)]:
        thread.join(PATIENCE)

    assert not both.broken
    assert len(clients) == 1
