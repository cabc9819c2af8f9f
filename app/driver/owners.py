"""Which run of the service works for the group: each run names itself beside every offset that its tasks commit."""

from __future__ import annotations

import math
from collections.abc import Mapping

from app.cures import reset_group
from app.driver.starting_offsets import PartitionOffsets
from app.driver.takeover import Takeover
from app.errors import ForeignSink, Superseded
from app.model import NOBODY, CommittedOffset, Owner, Partition
from app.offsets.metadata import owner_of
from app.runtime import Runtime

# What stands there at the first look, and what an earlier run's tasks commit until ours have fenced them, is left over.
LOOKS_AT_LEFTOVERS = 2
# A task without traffic commits one offset each second, so three of these stand still only where no task works.
SIGN_OF_LIFE_SECONDS = 3.0


class Owners:
    """
    Watches for another run of the service with the same group: the two would split the records or fight for them.

    Clocks differ from host to host, so only an offset that moves is a sign of life, never one that stands there.

    Args:
        me: this run.
        group: the group, for errors.
        runtime: the clock, and how long a run may commit nothing before it counts as gone.
    """

    def __init__(self, me: Owner, group: str, runtime: Runtime) -> None:
        self._me = me
        self._group = group
        self._clock, self._gone_seconds = runtime.monotonic, runtime.timings.gone
        self._looks = 0
        self._seen: dict[Partition, CommittedOffset | None] = {}
        self._rival, self._rival_at = NOBODY, 0.0
        self.takeover = Takeover(me, self._clock, self._gone_seconds)
        """What runs of other generations do."""
        self._looks_until = -math.inf
        self.stands_by = False
        """Whether this run leaves the work to any other one of its generation, also to one that started earlier."""

    def look(self, offsets: Mapping[Partition, PartitionOffsets]) -> None:
        """
        Take in who has committed the offsets.

        Raises:
            ForeignSink: somebody writes the group's records to another sink.
            Superseded: a run of the same generation that started later is at work, and this one does not stand by.
        """
        moved = {
            partition: owner_of(at.committed)
            for partition, at in offsets.items()
            if at.committed is not None and at.committed != self._seen.get(partition)
        }
        for partition, owner in moved.items():
            if owner.sink not in ("", self._me.sink):
                raise self._foreign_sink(partition, owner)
        self.takeover.look(moved)
        if self._looks >= LOOKS_AT_LEFTOVERS:
            others = {owner for partition, owner in moved.items() if partition in self._seen} - {NOBODY, self._me}
            self._meet({owner for owner in others if owner.generation == self._me.generation})
        self._seen |= {partition: at.committed for partition, at in offsets.items()}
        self._looks += 1

    def stand_by(self, commit_seconds: float) -> None:
        """Leave the work to whoever else does it; that shows by commits, which come each `commit_seconds` at least."""
        self.stands_by = True
        self._looks_until = self._clock() + max(SIGN_OF_LIFE_SECONDS, 2 * commit_seconds)

    @property
    def must_look(self) -> bool:
        """Whether it is too soon to say that nobody else works."""
        return self._clock() < self._looks_until

    @property
    def goes_first(self) -> Owner | None:
        """The run of our generation to which we leave the work; None if there is none, or we do not stand by."""
        return self.rival if self.stands_by else None

    @property
    def rival(self) -> Owner | None:
        """Another run of our generation that is at work, a later one only where we stand by; None if there is none."""
        alive = self._rival != NOBODY and self._clock() - self._rival_at < self._gone_seconds
        return self._rival if alive else None

    def _meet(self, others: set[Owner]) -> None:
        latest = max(others, default=NOBODY)
        if latest > self._me and not self.stands_by:
            msg = f"a later run of the service works for group {self._group!r}: {latest}; this one is {self._me}"
            cure = "stop one of them, or give it another group.id; to take over, give it a larger generation"
            raise Superseded(msg, cure)
        if latest != NOBODY:
            self._rival, self._rival_at = latest, self._clock()

    def _foreign_sink(self, partition: Partition, owner: Owner) -> ForeignSink:
        cause = (
            f"group {self._group!r} writes to {self._me.sink!r} here, but the offset of {partition} was committed by "
            f"{owner}: two services would split the records between two sinks"
        )
        changed = "if the sink was changed on purpose, stop the other service and set the offsets to themselves"
        return ForeignSink(cause, f"choose another group.id; or, {changed}: {reset_group()}")
