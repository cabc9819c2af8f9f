"""Asking a running service for its status."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from unittest.mock import Mock
from urllib.request import OpenerDirector

import pytest

from app.errors import NotUsable, Unreachable
from app.operate.served import address, status
from app.runtime import Runtime
from app.status.server import serve
from tests.fakes.driver import config
from tests.support.waiting import PATIENCE
from tests.unit.status.snapshots import NOW, SNAPSHOT


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers of these tests answer, however busy the machine is."""
    monkeypatch.setattr("app.operate.served.ANSWER_SECONDS", PATIENCE)


@pytest.mark.parametrize(
    ("assignments", "url"),
    [
        ([], "http://127.0.0.1:8090"),
        (["http.address=0.0.0.0", "http.port=1"], "http://127.0.0.1:1"),
        (["http.address='::'"], "http://[::1]:8090"),
        (["http.port=0"], ""),
        (["http.enabled=false"], ""),
    ],
)
def test_where_the_service_answers(assignments: list[str], url: str) -> None:
    """On this machine, if the configuration names a port."""
    assert url == address(config(*assignments))


def test_the_status_of_the_service() -> None:
    """It is the document of `/api/status`; that of another group is refused."""
    with serve("127.0.0.1", 0, lambda: SNAPSHOT, Runtime(wall_clock=lambda: NOW)) as url:
        found = status(url, "idc")
        with pytest.raises(NotUsable, match="the service of another group answers"):
            status(url, "g")

    assert ("idc", "running", 3) == (found["group"], found["phase"], len(found["partitions"]))


@pytest.fixture
def stranger(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of another server, which gives this answer: a code and a body, or bytes that may be no HTTP."""
    code, body = request.param

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if code is not None:
                self.send_response(code)
                self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("stranger", "cause"),
    [
        ((200, b"hello"), "something other than the status"),
        ((200, b"[1]"), "something other than the status"),
        ((200, b'{"version": 99, "now": 1}'), "something other than the status"),
        ((404, b""), "answers 404"),
        ((None, b"SSH-2.0-OpenSSH_9.6\r\n"), "something other than the status"),
        ((None, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"), "something other than the status"),
    ],
    indirect=["stranger"],
)
def test_another_server_is_not_the_service(stranger: str, cause: str) -> None:
    """Whatever it answers is not taken for a status."""
    with pytest.raises(NotUsable, match=cause):
        status(stranger, "idc")


def test_nothing_answers() -> None:
    """Nor is any other protocol asked."""
    with pytest.raises(Unreachable, match=r"no service answers at http://127.0.0.1:1"):
        status("http://127.0.0.1:1", "idc")
    for url in ("file:///etc/passwd", "http://[::1", "http://host:port", "http:///", "localhost:8090"):
        with pytest.raises(NotUsable, match="is not an HTTP address"):
            status(url, "idc")


def test_tls_that_breaks_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error after the handshake comes from reading; its own `reason` is a code."""
    broken = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] certificate required")
    broken.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    monkeypatch.setattr(OpenerDirector, "open", Mock(side_effect=broken))

    with pytest.raises(Unreachable, match="certificate required"):
        status("https://127.0.0.1:1", "g")
