"""A server as a process in its own folder, on free loopback ports. It never outlives the tests."""

from __future__ import annotations

import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import psutil

from app.embedded.broker import HeldPorts
from app.embedded.process import ManagedProcess, Startable
from app.errors import NotUsable
from tests.support.waiting import PATIENCE, freeze

LOOK_SECONDS = 0.05


class ServerFailed(NotUsable):
    """A server did not start or respond."""


class Server(Startable):
    """
    A third-party server.

    As a context manager it starts, stops and removes its data. `stop()` or `kill()` followed by `start()` brings it
    back on the same ports with the same data.
    """

    title: ClassVar[str]
    port_count: ClassVar[int] = 1

    def __init__(self) -> None:
        """Choose the ports without starting."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"winnow-{type(self).__name__.lower()}-"))
        self.ports = HeldPorts(self.port_count)
        self._process: ManagedProcess | None = None
        self._is_new = True

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.ports[0]

    @property
    def address(self) -> str:
        """The `host:port` that clients connect to."""
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Prepare the first start."""

    def command(self) -> list[str]:
        """Return the command that starts it."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Return whether it serves. An OSError also means no."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it and wait until it responds."""
        if self._is_new:
            self.prepare()
            self._is_new = False
        self._process = ManagedProcess(self.command(), self.log, cwd=self.folder, remove_on_death=self.folder)
        self._await_ready()

    def stop(self) -> None:
        """Stop it cleanly and keep the data."""
        self._end(at_once=False)

    def kill(self) -> None:
        """End it by SIGKILL and leave the data as it is."""
        self._end(at_once=True)

    def freeze(self) -> None:
        """Suspend it. Its connections stay open."""
        for process in self._processes():
            freeze(process)

    def thaw(self) -> None:
        """Resume it."""
        for process in self._processes():
            process.send_signal(signal.SIGCONT)

    def _processes(self) -> list[psutil.Process]:
        """Return the server's process without its supervisor, which must be able to end it."""
        return [] if self._process is None else psutil.Process(self._process.pid).children()

    def close(self) -> None:
        """End it and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, question: bytes) -> bytes:
        """Return the start of the server's response on its port."""
        with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.sendall(question)
            return connection.recv(200)

    def listens(self, port: int | None = None) -> bool:
        """Return whether it accepts connections at a port, by default its own."""
        socket.create_connection(("127.0.0.1", port or self.port), 1).close()
        return True

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.folder / "server.log"

    def said(self) -> str:
        """Return its output so far."""
        return self.log.read_text(errors="replace")

    def _end(self, *, at_once: bool) -> None:
        if self._process is not None:
            self._process.stop_and_wait(at_once=at_once)
            self._process = None

    def _await_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._process is not None and (code := self._process.poll()) is not None:
                message = f"{self.title} ended while starting (exit code {code}):\n{self.said()[-2000:]}"
                raise ServerFailed(message)
            try:
                if self.is_ready():
                    return
            except OSError:
                pass  # it is not listening yet
            time.sleep(LOOK_SECONDS)
        message = f"{self.title} did not answer at {self.address} within {PATIENCE:.0f} s:\n{self.said()[-2000:]}"
        raise ServerFailed(message)
