"""The dry run of a task's pipeline, for audit and replay."""

from __future__ import annotations

from functools import partial

from app.executor.fates import Fates
from app.executor.parse import make_parser, parse
from app.model import Destination, Partition, Partitioner, Plugin, TaskConfig
from app.records import Record
from tests.fakes import make_task_config
from tests.independent import cleansed, line

RAW, OTHER = Partition("raw", 3), Partition("other", 0)


def fates(config: TaskConfig) -> Fates:
    return Fates(config, partial(parse, make_parser(config)))


def record(offset: int, value: bytes | None, partition: Partition = RAW) -> Record:
    return Record(partition, offset, 1_000 + offset, b"k%d" % offset, value, [("own", b"1")])


def test_lines_and_dead_letters_in_order() -> None:
    """Each goes where a task would write it: lines keep key and time, dead letters also the headers."""
    records = [record(7, line(7)), record(8, b"rubbish", OTHER), record(9, line(9), OTHER)]

    first, second, third = fates(make_task_config()).of(records)

    assert (Partition("clean", 1), cleansed(7), b"k7", 1_007, "") == (
        first.to,
        first.written.value,
        first.written.key,
        first.written.timestamp,
        first.reason,
    )
    assert [] == first.written.headers
    assert (records[1], Partition("dead", 0), b"rubbish", "no_marker") == (
        second.record,
        second.to,
        second.written.value,
        second.reason,
    )
    headers = dict(second.written.headers)
    assert (b"1", b"other", b"8") == (
        headers["own"],
        headers["__connect.errors.topic"],
        headers["__connect.errors.offset"],
    )
    assert (Partition("clean", 0), cleansed(9)) == (third.to, third.written.value)


def test_a_parser_that_stops_short() -> None:
    """An isolated parser may return the results for a prefix only; the rest is parsed in the next call."""
    config = make_task_config()
    parser = make_parser(config)
    records = [record(n, line(n)) for n in range(3)]

    found = Fates(config, lambda values: parse(parser, values[:2])).of(records)

    assert [cleansed(n) for n in range(3)] == [each.written.value for each in found]


def test_what_the_sink_would_not_take() -> None:
    """The topics' limits apply, as for a task."""
    task_config = make_task_config(sink=Destination("clean", 1, 520), dead_letters=Destination("dead", 1, 1_000_000))

    (fate,) = fates(task_config).of([record(1, line(1))])

    assert "too_large" == fate.reason


def test_by_key() -> None:
    """With a field as key and partitioner, the line has that key, and Kafka's client chooses its partition."""
    parser = Plugin("delimited", {"fields": ["a", "b"], "output": "{b}|{a}"})
    task_config = make_task_config(parser=parser, sink_key="a", sink_partitioner=Partitioner.KEY)

    (fate,) = fates(task_config).of([record(1, b"1,x")])

    assert (Partition("clean", -1), b"1", b"x|1") == (fate.to, fate.written.key, fate.written.value)


def test_a_line_that_kafka_refuses() -> None:
    """It becomes a dead letter with Kafka's error text."""
    fate = fates(make_task_config()).refused(record(1, line(1)), "INVALID_RECORD")

    assert ("refused", "INVALID_RECORD", line(1), Partition("dead", 0)) == (
        fate.reason,
        fate.detail,
        fate.written.value,
        fate.to,
    )
