"""The results for some records of a partition, and their counts."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from app.executor.cleanse import Cleansed, Filters
from app.executor.fates import Fates
from app.executor.parse import make_parser, parse
from app.model import FilterRule, Guarantee, LastRead, OffsetRange, Partition
from app.offsets.metadata import Counts, OffsetMetadata
from app.records import Lines, OutgoingRecord, Record
from parsers.idc_access_log import IdcAccessLog
from tests.fakes import FakeClients, FakeKafka, SourceRecord, make_task_config
from tests.fakes.tasks import run_task
from tests.independent import cleansed, line

DEAD = OutgoingRecord(b"k", b"raw line", [], 1_000)


def test_a_record_that_kafka_refused_is_a_dead_letter_and_nothing_else() -> None:
    """It has no line, in the output or in the counts; the position stays."""
    lines = Lines(pa.array([b"line"]), np.array([0], np.int32), pa.array([b"k"]), np.array([1_000]))
    taken = Cleansed(1, 8, lines, 4, [], [], start=6, position=7, read=LastRead(7, 3))
    assert Counts(1, 1, {}, 8, 4) == taken.counts

    refused = taken.rejected(DEAD, "refused")

    assert [] == refused.lines.values.to_pylist() == refused.lines.rows.tolist()
    assert [DEAD] == refused.dead_letters
    assert Counts(1, 0, {"refused": 1}, 8, 0) == refused.counts
    assert (7, LastRead(7, 3)) == (refused.position, refused.read)


RAW = Partition("raw", 0)
SEVENS = FilterRule("sevens", "url", {"matches": "7$"})
ODD = FilterRule("odd", "url", {"matches": "[13579]$"})
BELOW_100 = FilterRule("below", "url", {"matches": r"\D\d\d?$"}, keeps=True)


class TestFilters:
    """Lines that are dropped on purpose: counted by rule, and nowhere else."""

    def test_the_first_rule_that_drops_a_line_counts_it(self) -> None:
        """Counts are of the rows between two, and rows keep their numbers."""
        parser = IdcAccessLog()
        parsed = parser.parse(pa.array([line(1), b"rubbish", line(2), line(7), line(127), line(128)], pa.binary()))

        kept, dropped = Filters([SEVENS, ODD, BELOW_100], parser).drop(parsed)

        assert ([2], [cleansed(2)], [1]) == (kept.rows.tolist(), kept.values.to_pylist(), kept.reject_rows.tolist())
        assert {"sevens": 2, "odd": 1, "below": 1} == dropped.counts(0, 6)
        assert {"odd": 1} == dropped.counts(0, 3)
        assert {"sevens": 1} == dropped.counts(4, 5)
        assert {} == dropped.counts(1, 3)

    def test_without_rules_nothing_is_touched(self) -> None:
        parser = IdcAccessLog()
        parsed = parser.parse(pa.array([line(1)], pa.binary()))

        kept, dropped = Filters([], parser).drop(parsed)

        assert kept is parsed
        assert {} == dropped.counts(0, 1)

    @pytest.mark.parametrize("guarantee", Guarantee)
    def test_a_task_counts_what_it_drops(self, guarantee: Guarantee) -> None:
        """The receipt balances, the counts are in the committed offset, and a partition of drops alone moves on."""
        other, good = Partition("raw", 1), [SourceRecord(line(number)) for number in range(30)]
        kafka = FakeKafka({RAW: [*good, SourceRecord(b"rubbish")], other: [SourceRecord(line(7))] * 3})
        clients = FakeClients(kafka, make_task_config(guarantee, filters=(SEVENS,)))

        first, second = run_task(clients, OffsetRange(RAW, None, 0), OffsetRange(other, None, 0))

        assert (31, 27, {"sevens": 3}) == (first.records, first.out, first.filtered)
        assert [cleansed(number) for number in range(30) if number % 10 != 7] == kafka.sink[RAW]
        assert first.balances
        assert second.balances
        assert {"sevens": 3} == OffsetMetadata.parse(kafka.committed[RAW].metadata).counts.filtered
        assert (3, 0, {"sevens": 3}, 3) == (second.records, second.out, second.filtered, kafka.committed[other].offset)

    def test_the_fate_of_a_dropped_record_names_the_rule(self) -> None:
        """An audit expects nothing of it."""
        config = make_task_config(filters=(SEVENS,))
        records = [Record(RAW, at, 1, b"k", value, []) for at, value in enumerate([line(7), b"rubbish", line(8)])]

        found = Fates(config, partial(parse, make_parser(config))).of(records)

        assert [("sevens", ""), ("", "no_marker"), ("", "")] == [(each.filtered, each.reason) for each in found]
