"""Fixtures for the parsers' tests: engines, a good access log line, and lines and events with results."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parsers.idc_access_log import FIELDS, IdcAccessLog
from tests import samples
from tests.samples import SOURCES, Sample, access_log

GOOD = {
    "commandid": b"3111",
    "houseid": b"238",
    "gathertime": b"20171112132902",
    "srcip": b"58.223.1.112",
    "destip": b"202.102.92.18",
    "srcport": b"59948",
    "destport": b"80",
    "domainname": b"www.example.org",
    "url": b"http://www.example.org/a?b=c,d",
    "logid": b"2556928065",
}

Line = Callable[..., bytes]


def _line(**changes: bytes) -> bytes:
    fields = GOOD | changes
    return b"<<<!>>>" + b"<<<!>>>,<<<!>>>".join(fields.get(name, b"") for name in FIELDS) + b"<<<!>>>"


@pytest.fixture(scope="session")
def line() -> Line:
    """Write an access log line with these fields changed."""
    return _line


@pytest.fixture(params=["compiled", "plain"])
def engine(request: pytest.FixtureRequest) -> str:
    """Return the name of each engine in turn."""
    return str(request.param)


@pytest.fixture
def idc(engine: str) -> IdcAccessLog:
    """Return the access log parser, on each engine in turn."""
    return IdcAccessLog(engine=engine)


@pytest.fixture(scope="session", params=SOURCES)
def sample(request: pytest.FixtureRequest) -> Sample:
    """Return lines written as edge cases, and recorded ones if there are any."""
    return access_log(request.param)


@pytest.fixture(scope="session", params=SOURCES)
def flume_events(request: pytest.FixtureRequest) -> list[tuple[bytes, bytes]]:
    """Return events in Flume's encoding with their bodies: written ones, and recorded ones if there are any."""
    return samples.flume_events(request.param)
