"""A screen shows what is known at once, and never waits for Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from app.errors import NotUsable, Unreachable, WinnowError
from app.model import CommittedOffset, FirstWaiting, Partition, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata
from app.operate.lag import PartitionLag
from app.operate.watching import Look, Repeated, WatchedLag, rows, summed
from app.runtime import Runtime

A, B, C = (Partition("raw", number) for number in range(3))
SECONDS = 2.0


@dataclass
class Later:
    """Calls that end when the test says so."""

    now: float = 0.0
    waiting: list[tuple[Callable[[], Any], Future[Any]]] = field(default_factory=list)

    @property
    def runtime(self) -> Runtime:
        return cast("Runtime", self)

    def monotonic(self) -> float:
        return self.now

    def wall_clock(self) -> float:
        return 1_000.0 + self.now

    def background(self, call: Callable[[], Any]) -> Future[Any]:
        self.waiting.append((call, Future()))
        return self.waiting[-1][1]

    def end(self) -> None:
        """End all calls that are being made."""
        ending, self.waiting = self.waiting, []
        for call, future in ending:
            try:
                future.set_result(call())
            except WinnowError as error:
                future.set_exception(error)


class AgesOf:
    """The ages of some partitions."""

    def __init__(self) -> None:
        self.asked: list[Mapping[Partition, int]] = []

    def waiting(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, FirstWaiting]:
        self.asked.append(offsets)
        return {each: FirstWaiting(960.0) for each in offsets}


def at(partition: Partition, lag: int) -> PartitionLag:
    return PartitionLag(partition, CommittedOffset(10), Watermarks(0, 10 + lag, 10 + lag))


def test_a_call_is_made_every_so_often_and_never_twice_at_once() -> None:
    """Its result is returned once, and its error raised once."""
    later = Later()
    results: Iterator[int | NotUsable] = iter([1, NotUsable("no", "mend it"), 3])

    def call() -> int:
        found = next(results)
        if isinstance(found, NotUsable):
            raise found
        return found

    calls = Repeated(call, SECONDS, later.runtime)
    assert [None, None] == [calls.result(), calls.result()]
    assert 1 == len(later.waiting)
    later.end()
    assert [1, None] == [calls.result(), calls.result()]
    assert not later.waiting, "the next one is not due"
    later.now = SECONDS
    calls.result()
    later.end()
    with pytest.raises(NotUsable):
        calls.result()
    later.now = 2 * SECONDS
    calls.result()
    later.end()
    assert 3 == calls.result()


def test_the_offsets_do_not_wait_for_the_ages() -> None:
    """A partition's age is a dash until it is known, and only those that lag are asked for."""
    later, ages = Later(), AgesOf()
    watched = WatchedLag(lambda: Look(later.now, [at(A, 5), at(B, 0)], None), ages, SECONDS, later.runtime)

    watched.poll()
    assert (None, []) == (watched.look, watched.found)
    later.end()
    watched.poll()
    assert [None, 0.0] == [each.seconds for each in watched.found]
    later.end()
    watched.poll()
    assert [40.0, 0.0] == [each.seconds for each in watched.found]
    later.now = SECONDS / 2
    assert [40.0, 0.0] == [each.seconds for each in watched.found], "as old as at the look"
    assert [{A: 10}] == ages.asked
    later.now = SECONDS
    for _ in range(2):
        watched.poll()
        later.end()
    assert [{A: 10}] * 2 == ages.asked, "after the next look they are read at once, and not before"


def test_an_outage_keeps_what_was_known() -> None:
    """Its message is shown until Kafka answers again; a refusal ends the command."""
    later = Later()
    looks: Iterator[Look | WinnowError] = iter(
        [Look(0, [at(A, 5)], None), Unreachable("no answer"), Look(4, [at(A, 6)], None), NotUsable("no", "yes")]
    )

    def look() -> Look:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    watched = WatchedLag(look, AgesOf(), SECONDS, later.runtime)
    said = []
    for _ in range(3):
        watched.poll()
        later.end()
        watched.poll()
        said.append((watched.trouble, [each.lag for each in watched.found]))
        later.now += SECONDS
    watched.poll()
    later.end()

    assert [("", [5]), ("no answer", [5]), ("", [6])] == said
    with pytest.raises(NotUsable):
        watched.poll()


def seen(partition: Partition, offset: int, end: int, *, dead: int = 0, since: int = 0) -> PartitionLag:
    counts = Counts(offset - since, offset - since - dead, {"empty": dead})
    metadata = str(OffsetMetadata("id", since, counts))
    return PartitionLag(partition, CommittedOffset(offset, metadata), Watermarks(0, end, end))


class TestRates:
    """Rates from two looks."""

    def test_rates_are_those_of_the_counts(self) -> None:
        """Records and dead letters per second, and the time until the lag is 0."""
        before = Look(10, [seen(A, 100, 1_000, dead=10)], None)
        now = Look(12, [seen(A, 500, 1_200, dead=50)], None)

        (row,) = rows(before, now)

        assert (200, 20, 100, 10.0, 7.0) == (row.records, row.dead, row.closing, row.share, row.seconds_to_close)
        assert {"lag": 700, "records_per_second": 200.0, "dead_letters_per_second": 20.0} == summed([row])
        assert (700, 200) == (row.as_json()["lag"], row.as_json()["records_per_second"])

    def test_the_first_look_has_no_rates(self) -> None:
        """Neither has a new partition."""
        for before in (None, Look(10, [], None), Look(12, [seen(A, 100, 200)], None)):
            (row,) = rows(before, Look(12, [seen(A, 100, 200)], None))
            assert (None, None, None, 0.0, None) == (
                row.records,
                row.dead,
                row.closing,
                row.share,
                row.seconds_to_close,
            )
        assert {"lag": 100, "records_per_second": 0, "dead_letters_per_second": 0} == summed(
            rows(None, Look(12, [seen(A, 100, 200)], None))
        )

    def test_a_lag_that_grows_does_not_close(self) -> None:
        """And a lag of 0 needs no time."""
        (row,) = rows(Look(1, [seen(A, 100, 200)], None), Look(2, [seen(A, 110, 300)], None))
        assert (10, -90, None) == (row.records, row.closing, row.seconds_to_close)

        (row,) = rows(Look(1, [seen(A, 100, 200)], None), Look(2, [seen(A, 200, 200)], None))
        assert row.seconds_to_close is None

    def test_counts_that_begin_anew(self) -> None:
        """After a reset, all counts are new."""
        (row,) = rows(Look(1, [seen(A, 100, 200)], None), Look(2, [seen(A, 60, 200, since=50)], None))

        assert 10 == row.records

    def test_the_worst_come_first(self) -> None:
        """Partitions with a problem come first, then the largest lag."""
        silent = PartitionLag(C, None, None)

        found = rows(None, Look(1, [seen(A, 10, 20), seen(B, 10, 90), silent], None))

        assert [C, B, A] == [each.at.partition for each in found]
