"""Asks a running service for its status over HTTP."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from app.config import Config
from app.errors import NotUsable, Unreachable
from app.status.snapshot import VERSION

PATH = "/api/status"
ANSWER_SECONDS = 5.0
MOST_BYTES = 64 << 20
"""More than the status of 10,000 partitions."""
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # to recognize it
CURE = "give the address of the service's status page with --status"


def address(config: Config) -> str:
    """Return where the service answers if it runs on this machine; empty if that is not known."""
    http = config.http
    if not http.enabled or not http.port:
        return ""
    host = EVERYWHERE.get(http.address, http.address)
    return f"http://{f'[{host}]' if ':' in host else host}:{http.port}"


def is_address(url: str) -> bool:
    """Whether this is an HTTP address, with a host and no impossible port."""
    try:
        found = urlsplit(url)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        return False


def status(url: str, group: str) -> dict[str, Any]:
    """Return what the group's service answers. Raises Unreachable if nothing answers, NotUsable if another server."""
    if not is_address(url):
        raise NotUsable(f"{url} is not an HTTP address", CURE)
    opener, place = build_opener(ProxyHandler({})), url.rstrip("/") + PATH  # it is not behind this machine's proxy
    try:
        with opener.open(place, timeout=ANSWER_SECONDS) as answer:
            document = json.loads(answer.read(MOST_BYTES))
    except HTTPError as error:
        raise NotUsable(f"{place} answers {error.code}", CURE) from None
    except OSError as error:
        reason = error.reason if isinstance(error, URLError) else error  # that of an SSLError is only a code
        raise Unreachable(f"no service answers at {place} ({reason})", CURE) from None
    except (HTTPException, ValueError):
        document = None
    if not isinstance(document, dict) or document.get("version") != VERSION or "now" not in document:
        raise NotUsable(f"{url} answers with something other than the status of this version's service", CURE)
    if document.get("group") != group:
        raise NotUsable(f"the service of another group answers at {url}", CURE)
    return document
