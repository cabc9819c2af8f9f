"""The connections of the HTTP server: so many at once and for so long, whatever their clients do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

ROOM_SECONDS = 0.05


class Connections:
    """
    Makes room for each new connection: the oldest one ends where there are too many, and each after a while.

    So clients that send a byte now and then, or read none, take the place of each other, and never that of one that
    asks and goes. Connections come in by one thread; each is served by a thread of its own, which calls `left`.

    Args:
        most: how many there may be.
        seconds: how long each may take.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._room = threading.Semaphore(most)
        self._seconds = seconds
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()

    def entered(self, connection: socket.socket) -> None:
        """Take in a connection as soon as there is room for it."""
        while not self._room.acquire(blocking=False):
            self._end(1)
            if self._room.acquire(timeout=ROOM_SECONDS):
                break
        with self._lock:
            self._open[connection] = time.monotonic()

    def left(self, connection: socket.socket) -> None:
        """Give up the place of a connection."""
        with self._lock:
            self._open.pop(connection, None)
        self._room.release()

    def end_old_ones(self) -> None:
        """End those that have taken too long."""
        latest = time.monotonic() - self._seconds
        with self._lock:
            old = sum(since < latest for since in self._open.values())
        self._end(old)

    def _end(self, count: int) -> None:
        """Shut down the oldest ones; their threads notice it, whatever they wait for, and leave."""
        with self._lock:
            for connection in list(self._open)[:count]:
                del self._open[connection]
                with contextlib.suppress(OSError):  # it has just ended
                    connection.shutdown(socket.SHUT_RDWR)
