"""Detects other runs of the service in the group: each run stores its name with every offset that its tasks commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.cures import RESET_TO_CURRENT
from app.driver.life import Life, Sight
from app.driver.takeover import Takeover
from app.errors import ForeignSink, ServiceRuns, Superseded
from app.model import NOBODY, CommittedOffset, Owner, Partition
from app.offsets.metadata import OffsetMetadata
from app.runtime import Runtime

# The first look finds old commits, and an earlier run's tasks commit until ours have fenced them.
LOOKS_AT_LEFTOVERS = 2
# Within that time, another run may have committed for the first time.
STALE_SECONDS = 1.0
TO_WORK_BESIDE = "stop it, or wait for it with --stand-by; to take over from it, give this run a larger generation"


class Owners:
    """
    Watches for another run with the same group: the two would split the records or fight over them.

    Clocks differ between hosts, so only an offset that moves is a sign of life.
    """

    def __init__(self, me: Owner, group: str, runtime: Runtime) -> None:
        self._me = me
        self._group = group
        self.sight = Sight(runtime.monotonic)
        self._looks = 0
        self._seen: dict[Partition, CommittedOffset | None] = {}
        self._timings = runtime.timings
        self._rival, self._rivals = NOBODY, Life(self.sight, self._timings.gone)
        self.takeover = Takeover(me, self.sight, self._timings.gone)
        self.stands_by = False
        """Whether this run yields to every other one of its generation, even to one that started earlier."""
        self._refuses = False
        """Whether it does not work at all if there is one."""
        self._must_look_for = 0.0
        self._named = False
        """Whether an offset has ever named another run."""

    def observe(self, offsets: Mapping[Partition, CommittedOffset | None]) -> None:
        """
        Record the committed offset of every partition; None without one.

        Raises:
            ForeignSink: another run writes the group's records to another sink.
            Superseded: a later run of this generation is active, and this run does not stand by.
            ServiceRuns: a run of this generation is active, and this run was to refuse that.
        """
        self.sight.opens(anew=self._looks < LOOKS_AT_LEFTOVERS)  # what moves until then is no sign
        moved = {
            partition: OffsetMetadata.of(committed).owner
            for partition, committed in offsets.items()
            if committed is not None and committed != self._seen.get(partition)
        }
        self._named = self._named or any(owner not in (NOBODY, self._me) for owner in moved.values())
        for partition, owner in moved.items():
            if owner.sink not in ("", self._me.sink):
                raise self._foreign_sink(partition, owner)
        self.takeover.observe(moved)
        known = moved.keys() & self._seen.keys() if self._looks >= LOOKS_AT_LEFTOVERS else set()
        others = {moved[partition] for partition in known} - {NOBODY, self._me}
        self._check_rivals({owner for owner in others if owner.generation == self._me.generation})
        self._seen |= offsets
        self._looks += 1

    def forget(self, partitions: Iterable[Partition]) -> None:
        for each in partitions:
            self._seen.pop(each, None)

    def look_before_work(self, commit_seconds: float, *, refuse: bool) -> None:
        """Wait until other runs of this generation are gone, or with `refuse` do not work at all if there is one."""
        self.stands_by, self._refuses = True, refuse
        self._must_look_for = self._timings.signs_of_life(commit_seconds)

    def work(self) -> None:
        """Replace other runs of this generation from now on."""
        self.stands_by = self._refuses = False

    @property
    def must_look(self) -> bool:
        """
        Whether it is too soon to rule out other runs.

        Unless an offset has named another run, it is so only after a first look that took long: another run may have
        committed since the offsets were read.

        After an outage, a run that is alive may take as long to commit again as one that is silent counts as alive.
        """
        seconds = self._timings.gone if self.sight.was_lost else self._must_look_for
        is_stale = self._looks < LOOKS_AT_LEFTOVERS and self.sight.took >= STALE_SECONDS
        return self.stands_by and (self.sight.seconds() < seconds if self._named else is_stale)

    @property
    def rival(self) -> Owner | None:
        """Another active run of this generation, a later one only while we stand by; None if there is none."""
        return self._rival if self._rivals.goes_on else None

    def _check_rivals(self, others: set[Owner]) -> None:
        self._rivals.observe(sign=bool(others))
        if not others:
            return
        self._rival = max(others)
        if self._refuses:
            raise ServiceRuns(f"{self._rival} works for group {self._group!r}", TO_WORK_BESIDE)
        if self._rival > self._me and not self.stands_by:
            msg = f"a later run of the service works for group {self._group!r}: {self._rival}; this run is {self._me}"
            raise Superseded(
                msg, "stop one of them, or give it another group.id; to take over, give it a larger generation"
            )

    def _foreign_sink(self, partition: Partition, owner: Owner) -> ForeignSink:
        cause = (
            f"group {self._group!r} writes to {self._me.sink!r} here, but the offset of {partition} was committed by "
            f"{owner}: two services would split the records between two sinks"
        )
        changed = "if the sink was changed on purpose, stop the other service and set the offsets to themselves"
        return ForeignSink(cause, f"choose another group.id; or, {changed}: {RESET_TO_CURRENT}")
