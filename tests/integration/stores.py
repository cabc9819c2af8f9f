"""What the tests of all offset stores on servers have in common."""

from __future__ import annotations

import uuid

import pytest

from app.offsets.contract import StoreContext
from tests.servers.server import Server


class OnServer:
    """A store on a server that can fail; each test has a group of its own."""

    server: Server

    @pytest.fixture(autouse=True)
    def _group(self) -> None:
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self.context = StoreContext(self.group, {})

    def stop_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        self.server.start()

    def freeze_server(self) -> None:
        self.server.freeze()

    def thaw_server(self) -> None:
        self.server.thaw()
