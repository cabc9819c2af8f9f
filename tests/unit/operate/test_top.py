"""Rates from two looks."""

from __future__ import annotations

from app.model import CommittedOffset, Partition, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata
from app.operate.lag import PartitionLag
from app.operate.top import rows, summed
from app.operate.watching import Look

A, B, C = (Partition("raw", number) for number in range(3))


def at(partition: Partition, offset: int, end: int, *, dead: int = 0, since: int = 0) -> PartitionLag:
    counts = Counts(offset - since, offset - since - dead, {"empty": dead})
    metadata = str(OffsetMetadata("id", since, counts))
    return PartitionLag(partition, CommittedOffset(offset, metadata), Watermarks(0, end, end))


def test_rates_are_those_of_the_counts() -> None:
    """Records and dead letters per second, and the time until the lag is 0."""
    before, now = Look(10, [at(A, 100, 1_000, dead=10)], None), Look(12, [at(A, 500, 1_200, dead=50)], None)

    (row,) = rows(before, now)

    assert (200, 20, 100, 10.0, 7.0) == (row.records, row.dead, row.closing, row.share, row.seconds_to_close)
    assert {"lag": 700, "records_per_second": 200.0, "dead_letters_per_second": 20.0} == summed([row])
    assert (700, 200) == (row.as_json()["lag"], row.as_json()["records_per_second"])


def test_the_first_look_has_no_rates() -> None:
    """Neither has a new partition."""
    for before in (None, Look(10, [], None), Look(12, [at(A, 100, 200)], None)):
        (row,) = rows(before, Look(12, [at(A, 100, 200)], None))
        assert (None, None, None, 0.0, None) == (row.records, row.dead, row.closing, row.share, row.seconds_to_close)
    assert {"lag": 100, "records_per_second": 0, "dead_letters_per_second": 0} == summed(
        rows(None, Look(12, [at(A, 100, 200)], None))
    )


def test_a_lag_that_grows_does_not_close() -> None:
    """And a lag of 0 needs no time."""
    (row,) = rows(Look(1, [at(A, 100, 200)], None), Look(2, [at(A, 110, 300)], None))
    assert (10, -90, None) == (row.records, row.closing, row.seconds_to_close)

    (row,) = rows(Look(1, [at(A, 100, 200)], None), Look(2, [at(A, 200, 200)], None))
    assert row.seconds_to_close is None


def test_counts_that_begin_anew() -> None:
    """After a reset, all counts are new."""
    (row,) = rows(Look(1, [at(A, 100, 200)], None), Look(2, [at(A, 60, 200, since=50)], None))

    assert 10 == row.records


def test_the_worst_come_first() -> None:
    """Partitions with a problem come first, then the largest lag."""
    silent = PartitionLag(C, None, None)

    found = rows(None, Look(1, [at(A, 10, 20), at(B, 10, 90), silent], None))

    assert [C, B, A] == [each.at.partition for each in found]
