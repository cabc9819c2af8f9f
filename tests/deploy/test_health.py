"""The image's health check, against a server that responds like the service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import ModuleType

import pytest

from app import config
from app.embedded.broker import HeldPorts
from tests.deploy.conftest import ROOT, script
from tests.support.waiting import PATIENCE

TINI = ["/usr/bin/tini", "-s", "--", "/opt/winnow/entrypoint.sh"]


@pytest.fixture(scope="module")
def health() -> ModuleType:
    return script("health")


@contextmanager
def service(code: int, body: bytes) -> Iterator[int]:
    """Answer /healthz while the block runs; return the port."""

    class HealthHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/healthz" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), HealthHandler) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["winnow", "run", "-c", "/etc/winnow/winnow.yaml"], True),
        (["driver", "--properties-file", "f", "local:///opt/winnow/main.py", "run", "-c", "f"], True),
        (["winnow", "parse", "run"], False),
        (["winnow"], False),
        (["executor"], False),
        (["python", "-m", "app.demo.feed", "--flume", "flume:44444"], False),
    ],
)
def test_only_the_service_is_asked(health: ModuleType, command: list[str], expected: bool) -> None:
    """A container with another command has no page and is always healthy."""
    assert health.is_service([*TINI, *command, ""]) is expected


def test_the_service_decides_whether_it_is_well(health: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response of /healthz decides: 200 is healthy; anything else is reported verbatim."""
    monkeypatch.setattr(health, "SECONDS", PATIENCE)
    with service(200, b"alive\n") as port:
        assert health.trouble(port) == ""
    with service(503, b"the driver has given no sign of life for 60 s\n") as port:
        assert health.trouble(port) == "the driver has given no sign of life for 60 s"


def test_silence_is_trouble(health: ModuleType) -> None:
    """The check fails if the service does not respond."""
    ports = HeldPorts(1)
    assert f"the service is not responding on port {ports[0]}" in health.trouble(ports[0])


def test_the_usual_port_is_that_of_the_service(health: ModuleType) -> None:
    """The script's port is the configuration's default, and it times out before the engine does."""
    assert config.load(ROOT / "docker/winnow.yaml", environ={}).http.port == health.PORT == health.port_in({})
    assert "--timeout=5s" in (ROOT / "docker/Dockerfile").read_text("utf-8")
    assert health.SECONDS < 5


@pytest.mark.parametrize("name", ["WINNOW_HTTP__PORT", "WINNOW_HTTP_PORT"])
def test_another_port_is_that_of_the_service(health: ModuleType, name: str) -> None:
    """The script reads each variable that moves the service."""
    environ = {name: "9100"}
    assert config.load(ROOT / "docker/winnow.yaml", environ=environ).http.port == health.port_in(environ) == 9100
