"""The decision whether tests/containers can run: an engine answers, or the reason names the address and the error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer

import pytest

from tests.containers import engine
from tests.containers.engine import why_no_engine
from tests.support.waiting import PATIENCE


class Engine(BaseHTTPRequestHandler):
    """Answers the first requests that a client sends to an engine."""

    def do_GET(self) -> None:  # the standard library's name
        """Answer /version and /_ping."""
        body = b'{"ApiVersion": "1.44"}' if self.path.endswith("/version") else b"OK"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: a Unix socket has no address to log."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name a socket in DOCKER_HOST on which nothing listens yet."""
    path = tmp_path / "engine.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    return path


@pytest.fixture
def answering(place: Path) -> Iterator[None]:
    """Start an engine that listens on the socket."""
    with UnixStreamServer(str(place), Engine) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("answering")
def test_an_engine_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an engine answers, there is no reason to skip."""
    monkeypatch.setattr(engine, "ANSWER_SECONDS", PATIENCE)
    assert "" == why_no_engine()


def test_no_engine_is_there(place: Path) -> None:
    """If nothing listens, one line names the address and the reason."""
    reason = why_no_engine()

    assert reason.startswith(f"no container engine answers at DOCKER_HOST=unix://{place}: ")
    assert "No such file" in reason
    assert "\n" not in reason


def test_an_engine_is_silent(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the engine listens but never answers, the check gives up."""
    monkeypatch.setattr(engine, "ANSWER_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place))
        silent.listen()

        assert "timed out" in why_no_engine().lower()
