"""Source records with what the parser makes of them."""

from __future__ import annotations

from functools import partial

from app.executor.parse import parse
from app.model import Partition
from app.operate.outcomes import Pair, pairs
from app.records import Record
from parsers import registry
from tests.independent import cleansed, line

A = Partition("raw", 0)
PARSE = partial(parse, registry.load("idc-access-log", {}))


def record(offset: int, value: bytes | None) -> Record:
    return Record(A, offset, 1_000, None, value, [])


RECORDS = [record(3, line(3)), record(4, b"rubbish \xff"), record(5, b""), record(9, line(9)), record(10, None)]


def test_each_record_with_its_outcome() -> None:
    """Accepted and rejected records in order; a record without a value is rejected."""
    found = list(pairs(RECORDS, PARSE))

    assert RECORDS == [each.record for each in found]
    assert [cleansed(3), None, None, cleansed(9), None] == [each.output for each in found]
    assert ["", "no_marker", "empty", "", "empty"] == [each.reason for each in found]


def test_only_some_reasons() -> None:
    """Only records with the given reasons are shown."""
    assert [4] == [each.record.offset for each in pairs(RECORDS, PARSE, ["no_marker", "houseid"])]


def test_nothing_has_arrived() -> None:
    """An idle topic shows nothing."""
    assert [] == list(pairs([], PARSE))


def test_what_is_printed() -> None:
    """Bytes that are not text are escaped, also as JSON."""
    good, bad = Pair(RECORDS[0], b"clean"), Pair(RECORDS[1], None, "no_marker", "there is none")

    assert "raw-0@4\n  input   rubbish \\xff\n  reason  no_marker: there is none" == str(bad)
    assert str(good).endswith("\n  output  clean")
    wild = record(6, "\x1b[2Jé\r\n\x9bm\t".encode())
    assert str(Pair(wild, b"a\x07b")) == "raw-0@6\n  input   \\x1b[2Jé\\r\\n\\x9bm\\t\n  output  a\\x07b"
    assert str(Pair(wild, None, "x", "not \x1b")).endswith("\n  reason  x: not \\x1b")
    assert {
        "topic": "raw",
        "partition": 0,
        "offset": 4,
        "timestamp": 1_000,
        "input": "rubbish \\xff",
        "reason": "no_marker",
        "detail": "there is none",
    } == bad.as_json()
    assert "clean" == good.as_json()["output"]
