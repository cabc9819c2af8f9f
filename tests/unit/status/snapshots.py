"""Snapshots for the tests of app/status."""

from __future__ import annotations

from app.errors import OutOfRange
from app.model import FirstWaiting, Partition
from app.offsets.metadata import Counts
from app.offsets.times import Histogram, TaskTimes
from app.status.snapshot import (
    About,
    Build,
    Ending,
    PartitionState,
    PartitionStatus,
    Phase,
    Problem,
    RoundStatus,
    Snapshot,
)
from app.status.window import Moment, Point

NOW = 10_000.0
SECRET = "hunter2"  # no secret: the word that must not appear
LOST = Problem.of(OutOfRange(Partition("raw", 1), "offsets 5 to 9 were deleted", 5, "set out.of.range"), since=9_000.0)
FLOWING = PartitionStatus(
    Partition("raw", 0),
    PartitionState.RUNNING,
    since=9_900.0,
    committed=900,
    last_stable=950,
    high_watermark=990,
    unstable_since=9_970.0,
    lag=50,
    waiting=FirstWaiting(9_880.0, 3_600.0),
    lost=7,
    moved=9_995.0,
    points=(Point(9_980.0, 940, 840, 1_000), Point(9_990.0, 950, 900, 2_000)),
    counts=Counts(100, 90, {"empty": 8, "srcip": 2}, 5_000, 4_000, committed=12, aborted=1, filtered={"health": 40}),
    reopened=3,
    fenced=2,
)
BLOCKED = PartitionStatus(
    Partition("raw", 1), PartitionState.BLOCKED, since=9_000.0, committed=5, last_stable=60, lag=55, problem=LOST
)
IDLE = PartitionStatus(Partition("other", 0), PartitionState.PLANNED, since=9_000.0, last_stable=30, high_watermark=30)
ROUND = RoundStatus(2, 9_900.0, 4, 2, 3, 400)
SNAPSHOT = Snapshot(
    at=9_990.0,
    group="idc",
    started=8_000.0,
    about=About(
        Build("1.2.3", "3.11.9", "4.3.0", "2.16.0", "bulk"), 2, "exactly-once", ("raw", "other"), "clean", "dead"
    ),
    alive=9_999.0,
    looked=9_990.0,
    phase=Phase.RUNNING,
    partitions={each.partition: each for each in (FLOWING, BLOCKED, IDLE)},
    round=ROUND,
    ended=(RoundStatus(1, 9_000.0, 4, 2, 3, 900, ending=Ending.REBALANCE, reason="uneven work", seconds=880.0),),
    endings={Ending.REBALANCE: 4, Ending.DONE: 1},
    totals=FLOWING.counts,
    tasks={
        0: TaskTimes(
            40.0, 0.5, Histogram(3.0, (0, 0, 4)), Histogram(1.0, (4,)), Histogram(0.25, (0, 0, 0, 0, 0, 0, 0, 1))
        ),
        1: TaskTimes(43.0, 0.25, Histogram(1.0, (0, 0, 1)), Histogram(0.5, (1,)), Histogram(20.0, (*(0,) * 13, 1))),
    },
    hour=(Moment(9_980.0, 50, 45, 5, 200, {"empty": 5}), Moment(9_990.0, 100, 90, 10, 105, {"empty": 8, "srcip": 2})),
    day=(Moment(9_000.0, 0, 0, 0, 900), Moment(9_990.0, 100, 90, 10, 105, {"empty": 8, "srcip": 2})),
)
NOTHING_YET = Snapshot(at=9_990.0, alive=9_990.0, group="idc", started=9_990.0)


def large(partitions: int) -> Snapshot:
    """Return a snapshot with this many partitions, each with dead letters for many reasons."""
    reasons = ["empty", "no_marker", "field_count", "houseid", "gathertime", "srcip", "destip", "too_large"]
    points = tuple(Point(9_870.0 + 10 * n, 10**9 + 1_000 * n, 10**9 + 900 * n, 900 * n) for n in range(13))
    statuses = {}
    for number in range(partitions):
        partition = Partition("a-topic-with-a-name-of-usual-length", number)
        counts = Counts(10**10, 10**10 - 8 * 10**6, dict.fromkeys(reasons, 10**6), 10**13, 10**12)
        statuses[partition] = PartitionStatus(
            partition,
            PartitionState.RUNNING,
            since=9_900.0,
            committed=10**12 + number,
            last_stable=10**12 + 5_000,
            high_watermark=10**12 + 6_000,
            lag=5_000 - number % 7,
            waiting=FirstWaiting(9_912.345, 604_800.0),
            moved=9_989.123,
            points=points,
            counts=counts,
        )
    return Snapshot(
        at=9_990.0, alive=9_999.0, looked=9_990.0, group="idc", started=1.0, phase=Phase.RUNNING, partitions=statuses
    )
