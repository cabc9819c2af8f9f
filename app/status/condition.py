"""
One word for the condition of each partition, without thresholds to configure.

A partition is *ok* if, at least once, everything that was waiting at one point of the window is done by the next.
Otherwise it is *stalled* if its offset does not move, else *catching up* or *falling behind* by the trend of its lag.
While Kafka does not respond, its condition is *unknown*; until the service works, its records are *waiting*.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import linear_regression
from typing import NamedTuple

from app.status.snapshot import PartitionState, PartitionStatus, Phase, Snapshot
from app.status.window import WINDOW_SECONDS, Point

# A window is complete once its first point is nearly that old; points come every few seconds.
WHOLE = 0.75


class Condition(StrEnum):
    """The condition of a partition."""

    OK = "ok"
    CATCHING_UP = "catching up"
    FALLING_BEHIND = "falling behind"
    STALLED = "stalled"
    BLOCKED = "blocked"
    PAUSED = "paused"
    UNKNOWN = "unknown"
    WAITING = "waiting"


class Judgement(NamedTuple):
    """The condition, and the seconds to close the gap at the pace of the window; None if the gap does not close."""

    condition: Condition
    seconds_to_close: float | None = None


def judge(status: PartitionStatus, service: Snapshot) -> Judgement:
    """Return the condition of a partition of the service, as the log, the metrics and the page name it."""
    if status.state is PartitionState.BLOCKED:
        return Judgement(Condition.BLOCKED)
    if status.state is PartitionState.PAUSED:
        return Judgement(Condition.PAUSED)
    if service.outage is not None:
        return Judgement(Condition.UNKNOWN)
    if service.phase is Phase.STARTING and status.lag:
        return Judgement(Condition.WAITING)
    return _judge_flow(status.points)


def _judge_flow(points: Sequence[Point]) -> Judgement:
    if not points or _keeps_up(points):
        return Judgement(Condition.OK)
    if points[-1].done == points[0].done:
        # Until the window is complete, a task may still be opening.
        whole = points[-1].at - points[0].at >= WHOLE * WINDOW_SECONDS
        return Judgement(Condition.STALLED if whole else Condition.CATCHING_UP)
    closing = -linear_regression([point.at for point in points], [_lag(point) for point in points]).slope
    if closing <= 0:
        return Judgement(Condition.FALLING_BEHIND)
    return Judgement(Condition.CATCHING_UP, _lag(points[-1]) / closing)


def records_per_second(status: PartitionStatus, service: Snapshot) -> float | None:
    """Return the records read per second, averaged over the window; None if nothing flows or no rate is known."""
    points = status.points
    if status.state is PartitionState.PAUSED or service.outage is not None or len(points) < 2:
        return None
    return max(0, points[-1].records - points[0].records) / (points[-1].at - points[0].at)


def _keeps_up(points: Sequence[Point]) -> bool:
    """Return whether the lag of some point of the window was done by the next point, or the last point has none."""
    return any(later.done >= point.end for point, later in pairwise((*points, points[-1])))


def _lag(point: Point) -> int:
    return point.end - point.done
