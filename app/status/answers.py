"""The HTTP server's responses, as a function of the path and the snapshot."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from importlib.resources import files
from typing import NamedTuple, Self

from app.status.document import document, history
from app.status.health import not_alive, not_ready
from app.status.metrics import CONTENT_TYPE, exposition
from app.status.snapshot import Snapshot

PAGE_HTML, PAGE_CSS, PAGE_JS = (
    files("app.status").joinpath(f"page.{kind}").read_bytes() for kind in ("html", "css", "js")
)
# One answer, so that the page is complete even if the driver ends.
PAGE = PAGE_HTML.replace(b"<style></style>", b"<style>%b</style>" % PAGE_CSS).replace(
    b"<script></script>", b"<script>%b</script>" % PAGE_JS
)
LONG = ("/api/status", "/api/history", "/metrics")
# The largest age of a shared response: a flood of scrapes costs no more than two a second
# (python -m tests.bench.scrape --flood 16).
FRESH_SECONDS = 0.5


def _allowed(element: str, content: bytes) -> str:
    """Return the Content-Security-Policy directive that allows an element of the page, but nothing injected into it."""
    return f"{element}-src 'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


PAGE_POLICY = "; ".join(
    [
        "default-src 'none'",
        _allowed("script", PAGE_JS),
        _allowed("style", PAGE_CSS),
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""
The policy for the page, which is a single file.

Even if a topic's name contains markup, the browser loads and sends nothing elsewhere, and no other site can frame it.
"""


class Answer(NamedTuple):
    """An HTTP response."""

    status: HTTPStatus
    content_type: str
    body: bytes

    @classmethod
    def line(cls, status: HTTPStatus, text: str) -> Self:
        return cls(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def answer(path: str, snapshot: Snapshot, now: float) -> Answer:
    """Return the response for a path without its query; `now` is in seconds since the epoch."""
    match path:
        case "/":
            return Answer(HTTPStatus.OK, "text/html; charset=utf-8", PAGE)
        case "/api/status" | "/api/history":
            found = document(snapshot, now) if path == "/api/status" else history(snapshot)
            return Answer(HTTPStatus.OK, "application/json", json.dumps(found).encode())
        case "/metrics":
            return Answer(HTTPStatus.OK, CONTENT_TYPE, exposition(snapshot, now))
        case "/healthz":
            return _verdict(not_alive(snapshot, now), "alive")
        case "/readyz":
            return _verdict(not_alive(snapshot, now) or not_ready(snapshot), "ready")
    return Answer.line(HTTPStatus.NOT_FOUND, "not found; try / /api/status /api/history /metrics /healthz /readyz")


class Answers:
    """
    The current response for each path.

    Python runs one thread at a time, and a long response takes milliseconds in which the driver's loop waits. So only
    one client at a time causes that work, and concurrent clients share the result.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], now: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._now = now
        self._writing = threading.Lock()
        self._last: dict[str, tuple[Snapshot, float, Answer]] = {}

    def at(self, path: str) -> Answer:
        if path not in LONG:
            return answer(path, self._snapshot(), self._now())
        with self._writing:
            snapshot, now = self._snapshot(), self._now()
            of, at, last = self._last.get(path, (snapshot, now, None))
            # A heartbeat makes a new snapshot ten times a second, in which nothing else has changed.
            unchanged = replace(of, alive=snapshot.alive) == snapshot
            if last is None or not unchanged or not 0 <= now - at < FRESH_SECONDS:
                last = answer(path, snapshot, now)
                self._last[path] = snapshot, now, last
            return last


def _verdict(trouble: str, well: str) -> Answer:
    return Answer.line(HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK, trouble or well)
