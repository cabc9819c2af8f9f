"""The HTTP requests that the server answers, by method, host and origin."""

from __future__ import annotations

import socket
from http import HTTPStatus

import pytest

from app.status.server import refusal

NAMES = {"status.example.org", "0.0.0.0"}  # an address to be named by


def refused(host: str | None, origin: str | None = None, method: str = "GET") -> HTTPStatus | None:
    hosts, origins = ([] if each is None else [each] for each in (host, origin))
    found = refusal(method, hosts, origins, NAMES)
    return None if found is None else found.status


@pytest.mark.parametrize(
    "host",
    [
        None,  # no browser
        "localhost:8090",
        "winnow.localhost:8090",
        "127.0.0.1:40123",
        "[::1]:8090",
        "10.244.0.17:8090",  # a pod's address: the kubelet's probes and Prometheus
        "winnow:8090",  # a service of Compose, or of the same namespace
        "status.example.org",
        "STATUS.example.org:443",
        "0.0.0.0:8090",
        socket.gethostname(),
    ],
)
def test_these_hosts_mean_us(host: str | None) -> None:
    """A stranger cannot own such a name, or an operator has allowed it."""
    assert refused(host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8090",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "status.example.org.evil.example",
        "status.example.org@evil.example",
        "ai.",
        "",
        "[::1",
        "a b",
        "127.0.0.1:8090, evil.example",
    ],
)
def test_a_name_that_a_stranger_can_own_is_not_us(host: str) -> None:
    """Its page could read ours once the name points here (DNS rebinding)."""
    assert HTTPStatus.MISDIRECTED_REQUEST == refused(host)


def test_one_of_two_hosts_is_enough() -> None:
    """A request that names two hosts is refused if one is wrong."""
    found = refusal("GET", ["localhost", "evil.example"], [], NAMES)
    assert found is not None
    assert HTTPStatus.MISDIRECTED_REQUEST == found.status
    assert b"unknown host name: use this server's IP address, or add the name to http.allowed.hosts\n" == found.body


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8090", None),
        ("HTTP://LOCALHOST:8090", None),
        ("https://status.example.org", None),  # a proxy that speaks TLS, and asks by another name
        ("http://localhost:9999", HTTPStatus.FORBIDDEN),
        ("http://evil.example", HTTPStatus.FORBIDDEN),
        ("null", HTTPStatus.FORBIDDEN),
        ("", HTTPStatus.FORBIDDEN),
    ],
)
def test_only_our_own_page_may_ask(origin: str, status: HTTPStatus | None) -> None:
    """The browser says which site's page sends the request."""
    assert status == refused("localhost:8090", origin)


@pytest.mark.parametrize("method", ["POST", "TRACE", "get", ""])
def test_only_reading(method: str) -> None:
    """Methods are case-sensitive, and only two are allowed."""
    assert HTTPStatus.METHOD_NOT_ALLOWED == refused("localhost", method=method)
    assert refused("localhost", method="HEAD") is None
