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
from collections.abc import Container, Iterable
from http import HTTPMethod, HTTPStatus

from app.status.answers import Answer

READING = (HTTPMethod.GET, HTTPMethod.HEAD)

_PORT = re.compile(r":\d*$")
# A name without a dot, such as that of a Compose or Kubernetes service, cannot be registered by a stranger.
_WITHOUT_A_DOT = re.compile(r"[a-z0-9_-]+")


def refusal(method: str, hosts: Iterable[str], origins: Iterable[str], names: Container[str]) -> Answer | None:
    """
    Return the answer to a refused request; None if the request is allowed.

    The server has the `names`, in lower case, besides those that always mean it. A client without a `Host` header is
    not a browser. `Origin` is the site of the requesting page.
    """
    if method not in READING:
        return Answer.line(HTTPStatus.METHOD_NOT_ALLOWED, "this server is read-only: use GET or HEAD")
    asked = [host.strip().lower() for host in hosts]
    if not all(_means_us(_name(host), names) for host in asked):
        reason = "unknown host name: use this server's IP address, or add the name to http.allowed.hosts"
        return Answer.line(HTTPStatus.MISDIRECTED_REQUEST, reason)
    sites = [origin.strip().lower().partition("://")[2] for origin in origins]
    if not all(site in asked or _name(site) in names for site in sites):
        return Answer.line(HTTPStatus.FORBIDDEN, "requests from other sites are not allowed")
    return None


def _means_us(name: str, names: Container[str]) -> bool:
    ours = name in names or name == socket.gethostname().lower() or name.endswith(".localhost")
    if ours or _WITHOUT_A_DOT.fullmatch(name):
        return True
    try:
        return bool(ipaddress.ip_address(name.removeprefix("[").removesuffix("]")))
    except ValueError:
        return False


def _name(host: str) -> str:
    return _PORT.sub("", host)
