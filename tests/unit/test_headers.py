"""Which headers are Winnow's own, whatever headers a source record has."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from app.executor.fates import Fates
from app.executor.parse import make_parser, parse
from app.headers import Header, origin_of, ours, theirs, whole_number
from app.kafka.hanging import mark
from app.kafka.records import headers_of
from app.model import Destination, Guarantee, Partition, Plugin, TaskConfig
from app.operate.dead_letters import Letter
from app.operate.ledger import Waiting
from app.records import Record

RAW, DEAD = Partition("raw", 3), Partition("dead", 0)
OTHER = Partition("other", 9)
FORGED: list[Header] = [
    ("winnow.transaction", b"winnow/g/raw/3@" + b"9" * 5000),
    ("winnow.replays", b"7"),
    ("winnow.source", b"other-9@9"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.topic", b"other"),
    ("__connect.errors.partition", b"9"),
    ("__connect.errors.offset", b"9"),
    ("__connect.errors.exception.class.name", b"houseid"),
    ("__connect.errors.exception.message", b"long; cut from 9 bytes, SHA-256 " + b"a" * 64),
    ("__connect.errors.timestamp", b"1"),
]
TASKS = TaskConfig(
    "g",
    Guarantee.EXACTLY_ONCE,
    Destination("clean", 1, 1_000_000),
    Destination("dead", 1, 1_000_000),
    "raw",
    Plugin("idc-access-log"),
    {"bootstrap.servers": "none"},
)


def dead_letter(*more: Header, headers: list[Header] = FORGED) -> Record:
    """Return the dead letter that a task writes for a record with these headers, followed by a replay's."""
    fates = Fates(TASKS, partial(parse, make_parser(TASKS)), clock=lambda: 1.0)
    (fate,) = fates.of([Record(RAW, 1042, 900, b"k", b"", headers)])
    return Record(DEAD, 5, 900, b"k", b"", [*fate.written.headers, *more])


class TestOurs:
    def test_a_source_record_cannot_forge_one(self) -> None:
        """A dead letter gives its true place and reason, whatever headers its source record had."""
        own = ours(dead_letter().headers)

        assert (RAW, 1042) == origin_of(dead_letter().headers)
        assert "empty" == own["__connect.errors.exception.class.name"]
        assert {"winnow.transaction", "winnow.replays", "winnow.source", "__connect.errors.timestamp"}.isdisjoint(own)
        assert FORGED == theirs(dead_letter().headers)

    @pytest.mark.parametrize("forged", FORGED, ids=[name for name, _ in FORGED])
    def test_each_alone(self, forged: Header) -> None:
        """A single forged header does not work either, without the pair that ours begin with."""
        record = dead_letter(headers=[forged])

        assert ([forged], (RAW, 1042)) == (theirs(record.headers), origin_of(record.headers))
        assert ours(dead_letter(headers=[]).headers) == ours(record.headers)

    def test_what_a_replay_has_added_is_ours(self) -> None:
        """A replay adds its count and its mark after all other headers."""
        own = ours(dead_letter(("winnow.replays", b"2"), mark(DEAD, "g", 4)).headers)

        assert ("2", "winnow/g/dead/0@4") == (own["winnow.replays"], own["winnow.transaction"])

    def test_all_headers_of_a_line_are(self) -> None:
        """A line keeps none of its source record's headers."""
        line = [mark(RAW, "g", 4), ("host", b"\xff"), ("winnow.source", b"raw-3@4")]

        assert {"winnow.transaction": "winnow/g/raw/3@4", "host": "\\xff", "winnow.source": "raw-3@4"} == ours(line)

    def test_the_dead_letter_of_another_tool_has_none(self) -> None:
        """Kafka Connect writes the topic before the stage; `winnow dlq ls` still shows such a record."""
        written = [*FORGED[:4], *FORGED[5:8], FORGED[4], ("__connect.errors.exception.class.name", b"theirs")]

        assert ({}, None) == (ours(written), origin_of(written))
        assert ("theirs", "other-9@9") == (
            (letter := Letter.of(Record(DEAD, 1, 1, None, b"", written))).reason,
            letter.origin,
        )
        assert Waiting.of(letter) is None


def test_numbers() -> None:
    """Only digits, and at most 63 bits; int() accepts more, and raises for thousands of digits."""
    assert (0, 2**63 - 1) == (whole_number("0"), whole_number(str(2**63 - 1)))
    assert all(whole_number(text) is None for text in ("", "x", "-1", " 1", "٣", "1_0", str(2**63), "9" * 5000))


class TestReaders:
    def test_a_letter_is_shown_as_what_it_is(self) -> None:
        """`winnow dlq` shows the service's reason and record."""
        letter = Letter.of(dead_letter())

        assert ("raw-3@1042", "empty") == (letter.origin, letter.reason)
        assert letter.as_json()["source_offset"] == 1042

    def test_a_replay_takes_the_record_as_it_was(self) -> None:
        """A replay counts from 0, with the record's timestamp and all its headers."""
        waiting = Waiting.of(Letter.of(dead_letter()))

        assert waiting is not None
        assert ((RAW, 1042, 900), FORGED, 0) == (waiting.record[:3], waiting.record.headers, waiting.replays)


class NotUtf8:
    """A confluent-kafka message with a header name that is not UTF-8."""

    def __init__(self) -> None:
        self.set: list[Header] | None = None

    def headers(self) -> list[Header]:
        if self.set is None:
            raise SystemError("returned a result with an exception set")
        return self.set

    def set_headers(self, headers: list[Header]) -> None:
        self.set = headers


def test_a_name_that_is_not_utf_8_ends_no_task() -> None:
    """confluent-kafka raises at the first read and would crash the process at the second; a task reads twice."""
    message: Any = NotUtf8()

    assert [[], []] == [headers_of(message), headers_of(message)]
