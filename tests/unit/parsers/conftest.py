"""Fixtures for the tests of the parsers: the engines, a good access log line, and lines and events with outcomes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from parsers.idc_access_log import FIELDS, IdcAccessLog

WRITTEN = Path(__file__).parents[2] / "data"
RECORDED = Path(__file__).parents[4] / "shared" / "data"
SOURCES = ["written", "recorded"] if RECORDED.exists() else ["written"]

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


Sample = tuple[list[bytes], list[str]]
"""Access log lines with their outcomes: the cleansed line, or the reason."""


@pytest.fixture(scope="session", params=SOURCES)
def sample(request: pytest.FixtureRequest) -> Sample:
    """Return written edge cases, then recorded lines if there are any."""
    return _recorded() if request.param == "recorded" else _written()


def _written() -> Sample:
    rows = map(json.loads, (WRITTEN / "idc-access-log.expected.jsonl").read_bytes().splitlines())
    lines = (WRITTEN / "idc-access-log.txt").read_bytes().split(b"\n")[:-1]
    return lines, [row["value"] if "value" in row else row["reason"] for row in rows]


def _recorded() -> Sample:
    """Return recorded lines, which all pass and need no escapes."""
    lines = (RECORDED / "idc-access-log.sample").read_bytes().splitlines()
    expected = []
    for line in lines:
        field = re.findall(r"<<<!>>>(.*?)<<<!>>>(?:,|$)", line.decode())
        expected.append(f"{field[1]}|{field[2]}|{field[3]}:{field[5]}|{field[4]}:{field[6]}|{field[13]}")
    return lines, expected


@pytest.fixture(scope="session", params=SOURCES)
def flume_events(request: pytest.FixtureRequest) -> list[tuple[bytes, bytes]]:
    """Return events as Flume writes them, each with its body: written ones, then recorded ones if there are any."""
    folder = RECORDED if request.param == "recorded" else WRITTEN
    rows = (folder / "flume-avro-events.txt").read_text(encoding="utf-8").splitlines()
    values = [bytes.fromhex(row.removeprefix("hex ")) for row in rows if row.startswith("hex ")]
    bodies = [ast.literal_eval(row.removeprefix("dec "))["body"] for row in rows if row.startswith("dec ")]
    return list(zip(values, bodies, strict=True))
