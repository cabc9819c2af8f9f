"""What the tests of the parsers share: the engines, a good access log line, and the recorded data where it is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from parsers.idc_access_log import FIELDS, IdcAccessLog

DATA = Path(__file__).parents[4] / "shared" / "data"

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
    """Name each of the two engines in turn."""
    return str(request.param)


@pytest.fixture
def idc(engine: str) -> IdcAccessLog:
    """Give the access log parser, on each engine in turn."""
    return IdcAccessLog(engine=engine)


@pytest.fixture(scope="session")
def sample() -> list[bytes]:
    """Give the recorded access log lines."""
    return _recorded("idc-access-log.sample").splitlines()


@pytest.fixture(scope="session")
def flume_values() -> list[bytes]:
    """Give the values that a real Flume wrote."""
    text = _recorded("flume-avro-events.txt").decode()
    return [bytes.fromhex(row.removeprefix("hex ")) for row in text.splitlines() if row.startswith("hex ")]


def _recorded(name: str) -> bytes:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the recorded data is not here: {path}")
    return path.read_bytes()
