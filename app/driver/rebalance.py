"""Reviews a round that goes on: is its plan still good? Asks nobody, and remembers only the last look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.driver.discover import Survey
from app.driver.plan import heaviest, plan
from app.driver.starting_offsets import Position
from app.model import OffsetMetadata, OffsetRange, Partition

# How long records of a partition may wait before something is wrong with it or its task, and how much longer for each
# partition of the task: to open hundreds takes long, and while they catch up it is seldom the turn of each.
STILL_SECONDS = 15.0
STILL_SECONDS_EACH = 0.25
# To plan anew costs readers a pause. It is worth that where the busiest task has so much more to do than it need have,
# and cannot keep up: more waits for it than it has done since the last look.
UNEVEN = 1.5


class Review:
    """
    What is known of a round that goes on.

    Args:
        tasks: which ranges each task has.
        survey: what the plan was made from.
        now: when the tasks began, in seconds.
    """

    def __init__(self, tasks: Sequence[Sequence[OffsetRange]], survey: Survey, now: float) -> None:
        self._tasks = tasks
        self._ranges = [offset_range for task in tasks for offset_range in task]
        self._positions = survey.positions
        self._blocked = survey.blocked.keys()
        self._looked = now
        self._still_since = {offset_range.partition: now for offset_range in self._ranges}
        self.records = self.dead = self.lag = 0
        """Records done between the last two looks, dead letters among them, and offsets that are still to be read."""
        self.seconds = 0.0
        """How long it was between them."""

    def pause(self, now: float) -> None:
        """Leave out a time in which nothing could be seen: nobody is blamed for it."""
        self._still_since = dict.fromkeys(self._still_since, now)

    def look(self, positions: Mapping[Partition, Position], slots: int, now: float) -> str:
        """Say why to plan anew; empty if the plan is still good."""
        before, self._positions = self._positions, positions
        self.seconds, self._looked = now - self._looked, now
        self._count(before, positions)
        if before.keys() != positions.keys():
            return "partitions came or went"
        for partition in self._blocked & positions.keys():
            if before[partition].committed != positions[partition].committed:
                return f"{partition}: it was blocked, and the group's offset was set"
        for partition in self._still_since:
            if why := _trouble(before[partition], positions[partition]):
                return f"{partition}: {why}"
        loads: dict[Partition, int] = {}
        lags: dict[Partition, int] = {}
        moved: dict[Partition, int] = {}
        for offset_range in self._ranges:
            partition, was, now_at = (
                offset_range.partition,
                before[offset_range.partition],
                positions[offset_range.partition],
            )
            moved[partition] = _done(offset_range, now_at) - _done(offset_range, was)
            if moved[partition] or not _lag(offset_range, was):
                self._still_since[partition] = now
            lags[partition] = _lag(offset_range, now_at)
            loads[partition] = lags[partition] + _end(offset_range, now_at) - _end(offset_range, was)
        return self._still(now) or self._worse_than(plan(self._ranges, loads, slots), loads, lags, moved)

    def _count(self, before: Mapping[Partition, Position], positions: Mapping[Partition, Position]) -> None:
        there = [offset_range for offset_range in self._ranges if offset_range.partition in positions]
        counted = [
            _counted(before[offset_range.partition], positions[offset_range.partition]) for offset_range in there
        ]
        self.records, self.dead = (sum(counts) for counts in zip(*counted, strict=True)) if counted else (0, 0)
        self.lag = sum(_lag(offset_range, positions[offset_range.partition]) for offset_range in there)

    def _still(self, now: float) -> str:
        for task in self._tasks:
            patience = STILL_SECONDS + STILL_SECONDS_EACH * len(task)
            for offset_range in task:
                still = now - self._still_since[offset_range.partition]
                if still > patience:
                    return f"{offset_range.partition}: nothing was committed for {still:.0f} s"
        return ""

    def _worse_than(
        self,
        best: Sequence[Sequence[OffsetRange]],
        loads: Mapping[Partition, int],
        lags: Mapping[Partition, int],
        moved: Mapping[Partition, int],
    ) -> str:
        if len(best) != len(self._tasks):
            return f"there are slots for {len(best)} tasks, not {len(self._tasks)}"
        busiest = max(self._tasks, key=lambda task: heaviest([task], loads))
        keeps_up = heaviest([busiest], lags) <= heaviest([busiest], moved)
        uneven = heaviest([busiest], loads) > UNEVEN * heaviest(best, loads)
        return "the work has become uneven" if uneven and not keeps_up else ""


def _trouble(before: Position, at: Position) -> str:
    """Say what a task may not notice, or cannot mend."""
    if before.topic_id != at.topic_id:
        return "its topic was deleted and created again"
    if before.committed is None:
        return ""
    if at.committed is None:
        return "the group's offset vanished"
    if at.committed.offset < before.committed.offset:
        return "the group's offset was set back"
    if at.committed == before.committed and not at.low <= at.committed.offset <= at.high:
        return "its next record was deleted"
    return ""


def _counted(before: Position, at: Position) -> tuple[int, int]:
    """Tell how many records were done between two looks, and how many of them are dead letters, as tasks noted it."""
    was, metadata = (OffsetMetadata.read(each.committed.metadata if each.committed else "") for each in (before, at))
    if metadata.since != was.since:  # another task: it counts from its own beginning
        was = OffsetMetadata()
    return max(0, metadata.records - was.records), max(0, metadata.dead - was.dead)


def _done(offset_range: OffsetRange, at: Position) -> int:
    """Return up to where a offset_range is done."""
    return offset_range.start if at.committed is None else max(offset_range.start, at.committed.offset)


def _end(offset_range: OffsetRange, at: Position) -> int:
    """Return up to where it can be done now; never before where it is done."""
    return max(_done(offset_range, at), at.stable if offset_range.end is None else min(at.stable, offset_range.end))


def _lag(offset_range: OffsetRange, at: Position) -> int:
    """Count what waits now."""
    return _end(offset_range, at) - _done(offset_range, at)
