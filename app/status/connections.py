"""Limits the number and the duration of the HTTP server's connections."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

ROOM_SECONDS = 0.05


class ServerConnections:
    """
    Makes room for each new connection by ending the oldest one, and ends each connection after some seconds.

    Slow clients displace each other, but not a client that sends its request and leaves. One thread accepts
    connections; each one is served by a thread of its own, which calls `left`.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._room = threading.Semaphore(most)
        self._seconds = seconds
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()

    def entered(self, connection: socket.socket) -> None:
        """Register a connection once there is room for it."""
        while not self._room.acquire(blocking=False):
            self._end(1)
            if self._room.acquire(timeout=ROOM_SECONDS):
                break
        with self._lock:
            self._open[connection] = time.monotonic()

    def left(self, connection: socket.socket) -> None:
        """Release the place of a connection."""
        with self._lock:
            self._open.pop(connection, None)
        self._room.release()

    def end_old_ones(self) -> None:
        """End connections that have taken too long."""
        latest = time.monotonic() - self._seconds
        with self._lock:
            old = sum(since < latest for since in self._open.values())
        self._end(old)

    def _end(self, count: int) -> None:
        """Shut down the oldest connections. Their threads notice in any wait, and leave."""
        with self._lock:
            for connection in list(self._open)[:count]:
                del self._open[connection]
                with contextlib.suppress(OSError):  # it has just ended
                    connection.shutdown(socket.SHUT_RDWR)
