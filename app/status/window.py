"""Sliding windows: each partition in the last minutes, and the whole service in the last hour and the last day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# Long enough for two commits at the largest `commit.interval`, so that a slow committer does not look stalled.
WINDOW_SECONDS = 120.0
HOUR_SECONDS = 3600.0
DAY_SECONDS = 24 * HOUR_SECONDS
# Closer points would show nothing more, but take much memory with a thousand partitions.
STEP_SECONDS = 5.0
MOMENT_SECONDS = 10.0
# A day has as many moments as an hour: 360, which is more than the page has pixels for.
DAY_MOMENT_SECONDS = 24 * MOMENT_SECONDS


class Point(NamedTuple):
    """
    One partition when its offsets were read.

    Args:
        at: the time, in seconds since the epoch.
        end: the last stable offset.
        done: the next offset to read.
        records: the records read since the service started.
    """

    at: float
    end: int
    done: int
    records: int


class Moment(NamedTuple):
    """
    The whole service at one time, in seconds since the epoch.

    Args:
        records: the counts of records, lines and dead letters since the start.
        lag: in offsets.
        reasons: the dead letters by reason.
        filtered: the dropped records by filter.
    """

    at: float
    records: int
    out: int
    dead: int
    lag: int
    reasons: Mapping[str, int] = {}
    filtered: Mapping[str, int] = {}


def with_point(points: tuple[Point, ...], point: Point) -> tuple[Point, ...]:
    """
    Return the window with a point appended; a point too close to the last one and points too old are left out.

    The newest of those too old stays, so that the points span the window however rare they are. Points that are not
    earlier are left out: the clock was set back.
    """
    points = tuple(each for each in points if each.at < point.at)
    kept = points[:-1] if len(points) > 1 and point.at - points[-2].at <= STEP_SECONDS else points
    within = recent(kept, point.at)
    return (*kept[: len(kept) - len(within)][-1:], *within, point)


def recent(points: tuple[Point, ...], now: float) -> tuple[Point, ...]:
    """Return the points of the last window. Only these count where nobody looked for a while, as in an outage."""
    return tuple(each for each in points if each.at > now - WINDOW_SECONDS)


def with_moment(
    moments: tuple[Moment, ...], moment: Moment, seconds: float = HOUR_SECONDS, step: float = MOMENT_SECONDS
) -> tuple[Moment, ...]:
    """
    Return the last `seconds` with a moment appended; a moment within `step` of the last one is left out.

    The newest stays, however old it is: two looks may be as far apart as `round.interval`.
    """
    moments = tuple(each for each in moments if each.at < moment.at)  # the clock may have been set back
    kept = moments[:-1] if len(moments) > 1 and moment.at - moments[-2].at <= step else moments
    within = tuple(each for each in kept if each.at > moment.at - seconds)
    return (*(within or kept[-1:]), moment)
