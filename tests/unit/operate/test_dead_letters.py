"""Dead letters as `winnow dlq` shows them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from app import model
from app.headers import Header
from app.model import Partition, Watermarks
from app.operate.dead_letters import (
    NO_REASON,
    DeadLetterReader,
    Letter,
    Selection,
    Statistics,
    newest,
    place_of,
)
from app.operate.reading import Span
from app.records import NO_TIMESTAMP, Record
from tests.fakes.audits import Topic

A, B = Partition("dead", 0), Partition("dead", 1)


def headers(reason: str, offset: int, topic: str = "raw") -> list[Header]:
    values = {
        "topic": topic,
        "partition": "3",
        "offset": str(offset),
        "exception.class.name": reason,
        "exception.message": f"it is {reason}",
    }
    return [("own", b"\xff"), *((f"__connect.errors.{name}", value.encode()) for name, value in values.items())]


def record(offset: int, timestamp: int, reason: str = "empty", partition: Partition = A) -> Record:
    return Record(partition, offset, timestamp, None, b"x\xff", headers(reason, offset + 100))


class TimedTopic(Topic):
    def __init__(self, offsets: dict[Partition, int | None]) -> None:
        super().__init__()
        self.offsets = offsets

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int | None]:
        return self.offsets


RECORDS = [record(0, 50), record(1, 10, "houseid"), record(0, 30, "empty", B), record(1, 70, "srcip", B)]


def test_what_the_record_bore_itself_says_nothing() -> None:
    """Only the headers from the stage on are Winnow's, whatever the record's are called."""
    stage = ("__connect.errors.stage", b"VALUE_CONVERTER")
    own: list[Header] = [stage, *headers("forged", 9), ("__connect.errors.timestamp", b"7"), ("winnow.replays", b"2")]
    ours = [stage, *headers("empty", 5)[1:]]

    letter = Letter.of(RECORDS[0]._replace(headers=[*own, *ours]))
    of_another_tool = Letter.of(RECORDS[0]._replace(headers=[*headers("empty", 5), stage]))

    assert ("empty", "raw-3@5", None) == (letter.reason, letter.origin, letter.errors.get("timestamp"))
    assert "raw-3@5" == of_another_tool.origin


def test_where_it_came_from_and_why() -> None:
    """Kafka Connect's headers are parsed, and everything can be written as JSON."""
    letter = Letter.of(RECORDS[1])

    assert ("0@1", "houseid", "it is houseid", "raw-3@101") == (
        letter.place,
        letter.reason,
        letter.detail,
        letter.origin,
    )
    found = json.loads(json.dumps(letter.with_content()))
    assert ("raw", 3, 101) == tuple(found[f"source_{name}"] for name in ("topic", "partition", "offset"))
    assert (None, "x\\xff", ["own", "\\xff"]) == (found["key"], found["value"], found["headers"][0])


def test_a_record_of_somebody_else() -> None:
    """A record without such headers is shown, too."""
    letter = Letter.of(Record(A, 0, 1, b"k", None, [("__connect.errors.offset", b"many")]))

    assert (NO_REASON, "", "") == (letter.reason, letter.detail, letter.origin)
    assert (None, None) == (letter.as_json()["source_topic"], letter.as_json()["source_offset"])


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), [50, 10, 30, 70]),
        (Selection(since=30), [50, 30, 70]),
        (Selection(until=50), [10, 30]),
        (Selection(30, 70), [50, 30]),
        (Selection(reasons=("houseid", "srcip")), [10, 70]),
    ],
)
def test_which_are_wanted(selection: Selection, expected: list[int]) -> None:
    """Timestamps are the source's and may not ascend, so each record is checked."""
    assert expected == [each.record.timestamp for each in map(Letter.of, RECORDS) if selection.takes(each)]


def test_the_newest() -> None:
    """Sorted by time, oldest first."""
    assert [50, 70] == [each.record.timestamp for each in newest(map(Letter.of, RECORDS), 2)]
    assert [10, 30, 50, 70] == [each.record.timestamp for each in newest(map(Letter.of, RECORDS), 9)]


def test_the_last_ones_without_reading_everything() -> None:
    """Control records take offsets, too, so it reads further back until it has enough records."""
    there = [*((A, offset) for offset in [*range(900), 996]), (B, 3)]
    topic = Topic([record(offset, offset, partition=each) for each, offset in there])
    marks = {A: Watermarks(0, 1_000, 1_000), B: Watermarks(2, 10, 10)}
    topic.watermarks = lambda partitions: marks  # type: ignore[method-assign]
    letters = DeadLetterReader("dead", Topics(topic), topic)  # type: ignore[arg-type]  # what it asks

    assert [899, 996] == [each.record.offset for each in letters.newest(Selection(), 2)]
    begins = [{A: 996, B: 6}, {A: 984, B: 2}, {A: 936, B: 2}, {A: 744, B: 2}]
    assert [(each, at[each], marks[each].last_stable) for at in begins for each in (A, B)] == topic.read


def test_how_many() -> None:
    """By reason, the most frequent first, with percentages."""
    found = Statistics(map(Letter.of, RECORDS))

    assert [("empty", 2, 50.0), ("houseid", 1, 25.0), ("srcip", 1, 25.0)] == found.rows()
    assert (4, 10, 70, {"raw": 4}) == (found.total, found.first, found.last, found.topics)
    assert [] == Statistics([]).rows()


def test_a_time_that_is_not_known_is_left_out() -> None:
    """Of records without a timestamp."""
    found = Statistics([Letter.of(record(0, NO_TIMESTAMP)), Letter.of(record(1, 5)), Letter.of(record(2, 3))])

    assert (3, 3, 5) == (found.total, found.first, found.last)


def test_where_reading_begins() -> None:
    """At the beginning or at a time, and at the end if no record is that late."""
    marks = {A: Watermarks(5, 90, 95), B: Watermarks(0, 10, 10)}
    letters = DeadLetterReader("dead", TimedTopic({A: 40, B: None}), Topic())  # type: ignore[arg-type]  # what it asks

    assert {A: Span(5, 90), B: Span(0, 10)} == letters.spans(marks, Selection())
    assert {A: Span(40, 90), B: Span(10, 10)} == letters.spans(marks, Selection(since=7))


def test_one_dead_letter() -> None:
    """It is read alone; where none can be, none is read."""
    topic = Topic([record(5, 1), record(7, 3), record(0, 1, partition=B)], {A: 5})
    letters = DeadLetterReader("dead", Topics(topic), topic)  # type: ignore[arg-type]  # what it asks

    assert ["0@5", "0@7"] == [found.place for at in (5, 7) if (found := letters.at(0, at))]
    assert [None] * 4 == [letters.at(*place) for place in ((0, 4), (0, 6), (0, 8), (2, 0))]
    assert [(A, 5, 6), (A, 7, 8), (A, 6, 7)] == topic.read


def test_only_a_selection_needs_the_whole_topic() -> None:
    """The last ones are at the end."""
    topic = Topic([record(at, at) for at in range(9)])
    letters = DeadLetterReader("dead", Topics(topic), topic)  # type: ignore[arg-type]  # what it asks

    assert [8] == [each.record.offset for each in letters.newest(Selection(), 1)]
    assert [8] == [each.record.offset for each in letters.newest(Selection(reasons=["empty"]), 1)]
    assert [(A, 7, 9), (A, 0, 9)] == topic.read


class Topics:
    """The topic of the dead letters, with two partitions."""

    def __init__(self, topic: Topic) -> None:
        self.watermarks = topic.watermarks

    def source_topics(self, *_: object) -> dict[str, model.Topic]:
        return {"dead": model.Topic("dead", "id", 2)}


def test_a_place() -> None:
    """The form is that of `ls`."""
    assert (3, 1042) == place_of("3@1042")
    for wrong in ("", "3", "3@", "@5", "a@5", "3@-1"):
        with pytest.raises(ValueError, match="write partition@offset"):
            place_of(wrong)
