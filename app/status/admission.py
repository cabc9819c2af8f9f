"""
Which requests the HTTP server answers: those that read, from whoever means this server and not another one.

A page of somebody else in the browser of a person who can reach this server must not read it. By DNS rebinding such a
page makes its own name point here, and its requests then bear that name as `Host`. So only a name that strangers cannot
own is answered. An IP address is none, so the probes of Kubernetes and Prometheus' scrapes of pods pass.
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
# Nobody can own a name without a dot, such as that of a Compose or a Kubernetes service.
_WITHOUT_A_DOT = re.compile(r"[a-z0-9_-]+")


class Admission:
    """
    Decides which requests are answered.

    Args:
        names: the names by which this server is asked, besides those that always mean it.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._named = {name.lower() for name in names}
        self._names = self._named | {socket.gethostname().lower()}

    def refusal(self, method: str, hosts: Iterable[str], origins: Iterable[str]) -> Answer | None:
        """
        Return the answer to a request that is refused; None where it is not.

        Args:
            method: its method.
            hosts: the values of its `Host` headers; a client that sends none is no browser.
            origins: the values of its `Origin` headers: which site's page asks.
        """
        if method not in READING:
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "this server only reads: ask with GET or HEAD")
        asked = [host.strip().lower() for host in hosts]
        if not all(self._means_us(_name(host)) for host in asked):
            reason = "this server has another name: use its IP address, or add the name to http.allowed.hosts"
            return _refused(HTTPStatus.MISDIRECTED_REQUEST, reason)
        if not all(self._is_own(origin.strip().lower(), asked) for origin in origins):
            return _refused(HTTPStatus.FORBIDDEN, "this server does not answer the pages of other sites")
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
    """Return a host without its port."""
    return _PORT.sub("", host)


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
