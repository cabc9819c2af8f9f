"""
Decides which HTTP requests are answered: reads that are addressed to this server.

A malicious page in a user's browser must not read the status. By DNS rebinding, such a page points its own name at this
server, and its requests carry that name as `Host`. So the server answers only to names that a stranger cannot own. IP
addresses qualify, so Kubernetes probes and Prometheus scrapes of pods pass.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from http import HTTPMethod, HTTPStatus

from app.status.answers import TEXT, Answer

READING = (HTTPMethod.GET, HTTPMethod.HEAD)

_PORT = re.compile(r":\d*$")
# A name without a dot, such as that of a Compose or Kubernetes service, cannot be registered by a stranger.
_WITHOUT_A_DOT = re.compile(r"[a-z0-9_-]+")


class Admission:
    """Decides which requests are answered: those to `names`, and to names that always mean this server."""

    def __init__(self, names: Iterable[str]) -> None:
        self._named = {name.lower() for name in names}
        self._names = self._named | {socket.gethostname().lower()}

    def refusal(self, method: str, hosts: Iterable[str], origins: Iterable[str]) -> Answer | None:
        """
        Return the answer to a refused request; None if the request is allowed.

        A client without a `Host` header is not a browser. `Origin` is the site of the requesting page.
        """
        if method not in READING:
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "this server is read-only: use GET or HEAD")
        asked = [host.strip().lower() for host in hosts]
        if not all(self._means_us(_name(host)) for host in asked):
            reason = "unknown host name: use this server's IP address, or add the name to http.allowed.hosts"
            return _refused(HTTPStatus.MISDIRECTED_REQUEST, reason)
        if not all(self._is_own(origin.strip().lower(), asked) for origin in origins):
            return _refused(HTTPStatus.FORBIDDEN, "requests from other sites are not allowed")
        return None

    def _means_us(self, name: str) -> bool:
        own = name in self._names or name.endswith(".localhost") or bool(_WITHOUT_A_DOT.fullmatch(name))
        return own or _is_ip_address(name)

    def _is_own(self, origin: str, asked: Iterable[str]) -> bool:
        site = origin.partition("://")[2]
        return site in asked or _name(site) in self._named


def _refused(status: HTTPStatus, reason: str) -> Answer:
    return Answer(status, TEXT, f"{reason}\n".encode())


def _name(host: str) -> str:
    return _PORT.sub("", host)


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
