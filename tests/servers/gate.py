"""A gate in front of a server. Closed, it looks like a server that is down; frozen, like one that hangs."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Self

from app.embedded.broker import HeldPorts

LOOK_SECONDS = 0.05


class Gate:
    """
    Forwards its own loopback port to another one while it is open. A context manager.

    Args:
        target: the port of the server.
    """

    def __init__(self, target: int) -> None:
        self._ports = HeldPorts(1)
        (self.port,) = self._ports
        self._target = target
        self._frozen = False
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Let clients in."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Cut all connections and refuse new ones."""
        self._frozen = False
        with self._lock:
            listener, self._listener = self._listener, None
            connections, self._connections = self._connections, []
        for each in [listener, *connections] if listener is not None else connections:
            _cut(each)

    def freeze(self) -> None:
        """Keep all connections open without forwarding."""
        self._frozen = True

    def thaw(self) -> None:
        """Forward what has been waiting."""
        self._frozen = False

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._target))
                with self._lock:
                    self._connections += [client, server]
                    if self._listener is not listener:  # it has been closed meanwhile
                        _cut(client)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                while self._frozen:
                    time.sleep(LOOK_SECONDS)
                sink.sendall(content)
        _cut(source)
        _cut(sink)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
