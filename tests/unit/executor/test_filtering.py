"""Lines that are dropped on purpose: counted by rule, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from app.executor import task
from app.executor.fates import Fates
from app.executor.filtering import Filters
from app.executor.parse import make_parser, parse
from app.model import FilterRule, Guarantee, OffsetRange, Partition
from app.offsets.metadata import OffsetMetadata
from app.records import Record
from parsers.idc_access_log import IdcAccessLog
from tests.fakes import FakeClients, FakeClock, FakeKafka, SourceRecord, make_assignment, make_task_config
from tests.independent import cleansed, line

RAW = Partition("raw", 0)
SEVENS = FilterRule("sevens", "url", {"matches": "7$"})
ODD = FilterRule("odd", "url", {"matches": "[13579]$"})
BELOW_100 = FilterRule("below", "url", {"matches": r"\D\d\d?$"}, keeps=True)


def test_the_first_rule_that_drops_a_line_counts_it() -> None:
    """Counts are of the rows between two, and rows keep their numbers."""
    parser = IdcAccessLog()
    parsed = parser.parse(pa.array([line(1), b"rubbish", line(2), line(7), line(127), line(128)], pa.binary()))

    kept, dropped = Filters([SEVENS, ODD, BELOW_100], parser).drop(parsed)

    assert ([2], [cleansed(2)], [1]) == (kept.rows.tolist(), kept.values.to_pylist(), kept.reject_rows.tolist())
    assert {"sevens": 2, "odd": 1, "below": 1} == dropped.counts(0, 6)
    assert {"odd": 1} == dropped.counts(0, 3)
    assert {"sevens": 1} == dropped.counts(4, 5)
    assert {} == dropped.counts(1, 3)


def test_without_rules_nothing_is_touched() -> None:
    parser = IdcAccessLog()
    parsed = parser.parse(pa.array([line(1)], pa.binary()))

    kept, dropped = Filters([], parser).drop(parsed)

    assert kept is parsed
    assert {} == dropped.counts(0, 1)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_task_counts_what_it_drops(guarantee: Guarantee) -> None:
    """The receipt balances, the counts are in the committed offset, and a partition of drops alone moves on."""
    other, good = Partition("raw", 1), [SourceRecord(line(number)) for number in range(30)]
    kafka = FakeKafka({RAW: [*good, SourceRecord(b"rubbish")], other: [SourceRecord(line(7))] * 3})
    config, clock = replace(make_task_config(guarantee), filters=(SEVENS,)), FakeClock()
    assignment = make_assignment(config, OffsetRange(RAW, None, 0), OffsetRange(other, None, 0))

    first, second = task.run(assignment, FakeClients(kafka, config, clock), make_parser(config), 8, clock.runtime)

    assert (31, 27, {"sevens": 3}) == (first.records, first.out, first.filtered)
    assert [cleansed(number) for number in range(30) if number % 10 != 7] == kafka.sink[RAW]
    assert first.balances
    assert second.balances
    assert {"sevens": 3} == OffsetMetadata.parse(kafka.committed[RAW].metadata).counts.filtered
    assert (3, 0, {"sevens": 3}, 3) == (second.records, second.out, second.filtered, kafka.committed[other].offset)


def test_the_fate_of_a_dropped_record_names_the_rule() -> None:
    """An audit expects nothing of it."""
    config = replace(make_task_config(), filters=(SEVENS,))
    records = [Record(RAW, at, 1, b"k", value, []) for at, value in enumerate([line(7), b"rubbish", line(8)])]

    found = Fates(config, partial(parse, make_parser(config))).of(records)

    assert [("sevens", ""), ("", "no_marker"), ("", "")] == [(each.filtered, each.reason) for each in found]
