"""Reviews a round that goes on: is its plan still good? Asks nobody, and remembers only the last look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.driver.plan import heaviest, plan
from app.driver.positions import Position
from app.driver.survey import Survey
from app.model import Note, Partition, Share

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
        tasks: which shares each task has.
        survey: what the plan was made from.
        now: when the tasks began, in seconds.
    """

    def __init__(self, tasks: Sequence[Sequence[Share]], survey: Survey, now: float) -> None:
        self._tasks = tasks
        self._shares = [share for task in tasks for share in task]
        self._positions = survey.positions
        self._blocked = survey.blocked.keys()
        self._looked = now
        self._still_since = {share.partition: now for share in self._shares}
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
        for share in self._shares:
            partition, was, now_at = share.partition, before[share.partition], positions[share.partition]
            moved[partition] = _done(share, now_at) - _done(share, was)
            if moved[partition] or not _lag(share, was):
                self._still_since[partition] = now
            lags[partition] = _lag(share, now_at)
            loads[partition] = lags[partition] + _end(share, now_at) - _end(share, was)
        return self._still(now) or self._worse_than(plan(self._shares, loads, slots), loads, lags, moved)

    def _count(self, before: Mapping[Partition, Position], positions: Mapping[Partition, Position]) -> None:
        there = [share for share in self._shares if share.partition in positions]
        counted = [_counted(before[share.partition], positions[share.partition]) for share in there]
        self.records, self.dead = (sum(counts) for counts in zip(*counted, strict=True)) if counted else (0, 0)
        self.lag = sum(_lag(share, positions[share.partition]) for share in there)

    def _still(self, now: float) -> str:
        for task in self._tasks:
            patience = STILL_SECONDS + STILL_SECONDS_EACH * len(task)
            for share in task:
                still = now - self._still_since[share.partition]
                if still > patience:
                    return f"{share.partition}: nothing was committed for {still:.0f} s"
        return ""

    def _worse_than(
        self,
        best: Sequence[Sequence[Share]],
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
    was, note = (Note.read(each.committed.note if each.committed else "") for each in (before, at))
    if note.since != was.since:  # another task: it counts from its own beginning
        was = Note()
    return max(0, note.records - was.records), max(0, note.dead - was.dead)


def _done(share: Share, at: Position) -> int:
    """Return up to where a share is done."""
    return share.start if at.committed is None else max(share.start, at.committed.offset)


def _end(share: Share, at: Position) -> int:
    """Return up to where it can be done now; never before where it is done."""
    return max(_done(share, at), at.stable if share.end is None else min(at.stable, share.end))


def _lag(share: Share, at: Position) -> int:
    """Count what waits now."""
    return _end(share, at) - _done(share, at)
