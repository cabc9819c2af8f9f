"""A real Redis that writes to disk before it acknowledges."""

from __future__ import annotations

from typing import ClassVar

from tests.servers.bundles import REDIS, program
from tests.servers.server import Server

PROGRAMS = {"x86_64": "redis-server-6.2.6-v5-linux-amd64", "aarch64": "redis-server-6.2.7-linux-arm64"}


class Redis(Server):
    title: ClassVar = REDIS.title

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"redis://{self.address}"

    def command(self) -> list[str]:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]
        return [str(program(REDIS, PROGRAMS)), *options, "--appendfsync", "always", "--dir", str(self.folder)]

    def is_ready(self) -> bool:
        return self.ask(b"PING\r\n").startswith(b"+PONG")
