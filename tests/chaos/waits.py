"""How long readers waited: for an open transaction, for a partition, for anything at all. Pure, as the checker is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.grouped import SINK, Fault, History, Mark


class Stall(NamedTuple):
    """A time in which readers of an output partition waited for an open transaction."""

    where: str
    began: float
    ended: float
    after_repair: float
    """Seconds of it after the last fault was repaired."""

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.ended - self.began


def stalls(history: History, at_least: float = 1.0) -> list[Stall]:
    """
    Return the times in which the last stable offset of a partition stood still below its high watermark.

    The longest is first. `after_repair` counts from the repair of the last fault that began before the stall's end,
    because a service cannot make progress while, say, its broker is away.
    """
    found = []
    for (role, partition), marks in history.marks.items():
        for began, ended in _standing(marks):
            if ended - began >= at_least:
                repaired = max((min(f.until, ended) for f in history.faults if f.at <= ended), default=began)
                after = ended - max(began, repaired)
                found.append(Stall(f"{role}-{partition}", began, ended, after))
    return sorted(found, key=lambda stall: -stall.seconds)


def _standing(marks: Iterable[Mark]) -> Iterator[tuple[float, float]]:
    """Yield the begin and the end of each time in which the stable offset stood still below the high watermark."""
    began: Mark | None = None
    last: Mark | None = None
    for mark in marks:
        if began is not None and mark.stable > began.stable:
            yield began.at, mark.at
            began = None
        if mark.high > mark.stable and began is None:
            began = mark
        last = mark
        if mark.high == mark.stable:
            began = None
    if began is not None and last is not None:
        yield began.at, last.at


def idle_windows(history: History, seconds: float = 60.0) -> list[float]:
    """Return the starts of the windows in which lines were written but no live reader got one."""
    wrote = {int(at // seconds) for at, _ in history.writes}
    got = {int(run.at // seconds) for (reader, _), runs in history.reads.items() if reader != "final" for run in runs}
    return [number * seconds for number in sorted(wrote - got) if (number + 1) * seconds <= history.ends_at]


class Pause(NamedTuple):
    """The longest time in which a reader got nothing from a partition that a fault should have spared."""

    fault: Fault
    whole: float
    """Seconds, within the whole fault."""
    settled: float
    """Seconds, after the cluster has had time to elect other leaders and coordinators."""


def pauses(history: History, settling: float = 10.0, reader: str = "first") -> list[Pause]:
    """Return for each fault that names what it harms how long readers of the others waited at most."""
    found = []
    for fault in history.faults:
        for harm in history.harmed:
            if fault.began <= harm.since <= fault.until:
                spared = _reads(history, reader, harm.partitions)
                whole = _longest_gap(spared, harm.since, harm.until)
                found.append(Pause(fault, whole, _longest_gap(spared, harm.since + settling, harm.until)))
    return found


def _reads(history: History, reader: str, harmed: frozenset[int]) -> dict[int, list[float]]:
    """Return when a reader got something from each partition of the sink, except from harmed ones."""
    times: dict[int, list[float]] = {}
    for run in history.reads.get((reader, SINK), ()):
        if run.partition not in harmed:
            times.setdefault(run.partition, []).append(run.at)
    return times


def _longest_gap(times: dict[int, list[float]], begin: float, end: float) -> float:
    """Return the longest time without a read in any of the partitions, between two moments."""
    gaps = [
        after - before
        for each in times.values()
        for before, after in pairwise([begin, *(at for at in each if begin < at < end), end])
    ]
    return max(gaps, default=0.0) if begin < end else 0.0
