"""What the HTTP server answers: a function of the path and the snapshot."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from http import HTTPStatus
from importlib.resources import files
from typing import NamedTuple

from app.status.document import document
from app.status.health import not_alive, not_ready
from app.status.metrics import exposition
from app.status.snapshot import Snapshot

TEXT = "text/plain; charset=utf-8"
PAGE = files("app.status").joinpath("page.html").read_bytes()
LONG = ("/api/status", "/metrics")
# How old an answer may be that another client got: a flood of scrapes costs no more than two a second
# (python -m tests.bench.scrape --flood 16).
FRESH_SECONDS = 0.5


def _allowed(element: str) -> str:
    """Return what a Content-Security-Policy says to allow an element of the page, and nothing that is put into it."""
    (content,) = re.findall(rf"<{element}>(.*?)</{element}>".encode(), PAGE, re.DOTALL)
    return f"{element}-src 'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


PAGE_POLICY = "; ".join(
    [
        "default-src 'none'",
        _allowed("script"),
        _allowed("style"),
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""
What a browser may do with the page, which is one file.

Whatever a topic's name may try, nothing is loaded from elsewhere, nothing is sent there, and no other page holds it.
"""


class Answer(NamedTuple):
    """An answer of the server."""

    status: HTTPStatus
    content_type: str
    body: bytes


def answer(path: str, snapshot: Snapshot, now: float) -> Answer:
    """
    Return what stands at a path.

    Args:
        path: without its query.
        snapshot: what is known; during an outage of Kafka it is an old one, and says how old.
        now: seconds since the epoch.
    """
    match path:
        case "/":
            return Answer(HTTPStatus.OK, "text/html; charset=utf-8", PAGE)
        case "/api/status":
            return Answer(HTTPStatus.OK, "application/json", json.dumps(document(snapshot, now)).encode())
        case "/metrics":
            body, content_type = exposition(snapshot, now)
            return Answer(HTTPStatus.OK, content_type, body)
        case "/healthz":
            return _verdict(not_alive(snapshot, now), "alive")
        case "/readyz":
            return _verdict(not_alive(snapshot, now) or not_ready(snapshot), "ready")
    return Answer(HTTPStatus.NOT_FOUND, TEXT, b"here are: / /api/status /metrics /healthz /readyz\n")


class Answers:
    """
    What stands at each path now.

    The interpreter runs one thread at a time, and to write a long answer takes milliseconds, which the driver's loop
    waits for. So one client at a time causes that, and those that ask at once get the same answer.

    Args:
        snapshot: returns the last snapshot.
        now: returns seconds since the epoch.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], now: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._now = now
        self._writing = threading.Lock()
        self._last: dict[str, tuple[Snapshot, float, Answer]] = {}

    def at(self, path: str) -> Answer:
        """Return what stands at a path, which is without its query."""
        if path not in LONG:
            return answer(path, self._snapshot(), self._now())
        with self._writing:
            snapshot, now = self._snapshot(), self._now()
            of, at, last = self._last.get(path, (None, now, None))
            if last is None or of is not snapshot or not 0 <= now - at < FRESH_SECONDS:
                last = answer(path, snapshot, now)
                self._last[path] = snapshot, now, last
            return last


def _verdict(trouble: str, well: str) -> Answer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
    return Answer(status, TEXT, f"{trouble or well}\n".encode())
