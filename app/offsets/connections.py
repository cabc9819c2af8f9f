"""A pool of connections for clients that serve one thread at a time."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """A connection."""

    def close(self) -> object: ...


C = TypeVar("C", bound=Closable)

KEPT = 8
"""How many idle connections are kept: as many commits run concurrently in a task."""
IDLE_SECONDS = 30.0
"""How long one is kept. HBase's Thrift server closes idle ones after a minute, MySQL's later."""


class Connections(Generic[C]):
    """Lends each call an idle connection or a new one, made by `connect`."""

    def __init__(self, connect: Callable[[], C]) -> None:
        self._connect = connect
        self._idle: queue.LifoQueue[tuple[float, C]] = queue.LifoQueue(KEPT)

    @contextlib.contextmanager
    def one(self) -> Iterator[C]:
        """Lend a connection; after an error, close it and the idle ones, whose server may be gone."""
        connection = self._idle_one() or self._connect()
        try:
            yield connection
        except BaseException:
            _close(connection)
            self.close()
            raise
        try:
            self._idle.put_nowait((time.monotonic(), connection))
        except queue.Full:
            _close(connection)

    def close(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                _close(self._idle.get_nowait()[1])

    def _idle_one(self) -> C | None:
        with contextlib.suppress(queue.Empty):
            while True:
                since, connection = self._idle.get_nowait()
                if time.monotonic() - since < IDLE_SECONDS:
                    return connection
                _close(connection)
        return None


def _close(connection: Closable) -> None:
    with contextlib.suppress(Exception):  # a broken connection may fail again
        connection.close()
