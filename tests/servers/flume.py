"""A real Flume 1.11 agent that runs docker/flume.conf: lines from a socket, a channel on disk, Kafka."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from app.embedded.broker import HeldPorts
from app.embedded.jars import fetch_jars, find_java
from app.embedded.process import ManagedProcess
from tests.servers.bundles import FLUME
from tests.support.waiting import PATIENCE

CONFIGURATION = Path(__file__).parents[2] / "docker" / "flume.conf"
JAVA = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


class FlumeAgent:
    """
    A Flume agent. `kill()` and `start()` restart it with the channel's files as they are.

    Args:
        folder: for its channel and its log.
        bootstrap: the address of Kafka.
        topic: the topic that it writes to.
        avro: whether it writes Flume's Avro events, or only their bodies.
    """

    def __init__(self, folder: Path, bootstrap: str, topic: str, *, avro: bool) -> None:
        """Write its configuration without starting."""
        self._ports = HeldPorts(1)
        (self.port,) = self._ports
        self._log, self._file = folder / "flume.log", folder / "flume.conf"
        replaced = {
            "sources.socket.bind": "127.0.0.1",
            "sources.socket.port": self.port,
            "channels.disk.checkpointDir": folder / "checkpoint",
            "channels.disk.dataDirs": folder / "data",
            "sinks.kafka.kafka.bootstrap.servers": bootstrap,
            "sinks.kafka.kafka.topic": topic,
            "sinks.kafka.useFlumeEventFormat": str(avro).lower(),
        }
        rows = "".join(f"agent.{name} = {value}\n" for name, value in replaced.items())
        self._file.write_text(f"{CONFIGURATION.read_text()}\n{rows}")  # the last row with a name wins

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End it. If a test failed, print its log."""
        self.kill()
        if kind is not None:
            print("the log of Flume:", self._log.read_text(errors="replace")[-5_000:])

    def start(self) -> None:
        """Start it and wait until its socket is open."""
        command = [find_java(), *JAVA, "-cp", f"{fetch_jars(FLUME)}/*", "org.apache.flume.node.Application"]
        options = ["--no-reload-conf", "--name", "agent", "--conf-file", str(self._file)]
        self._process = ManagedProcess([*command, *options], self._log)
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            assert self._process.poll() is None, f"Flume ended:\n{self._log.read_text()[-5_000:]}"
            assert time.monotonic() < deadline, f"Flume does not listen:\n{self._log.read_text()[-5_000:]}"
            time.sleep(0.05)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.stop_and_wait(at_once=True)

    def stop(self) -> None:
        """Stop it cleanly, so that it remembers what its sink has sent."""
        self._process.stop_and_wait()

    def send(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Send lines. Yield each one that Flume acknowledges, which is then in the channel. The others may be, too."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
            connection.sendall(b"".join(line + b"\n" for line in lines))
            for line, answer in zip(lines, connection.makefile("rb"), strict=False):
                assert answer == b"OK\n", answer
                yield line

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
