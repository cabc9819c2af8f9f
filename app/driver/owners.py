"""Which run of the service works for the group: each run names itself beside every offset that its tasks commit."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from app.cures import reset_group
from app.driver.life import Life, Sight
from app.driver.takeover import Takeover
from app.errors import ForeignSink, ServiceRuns, Superseded
from app.model import NOBODY, CommittedOffset, Owner, Partition
from app.offsets.metadata import owner_of
from app.runtime import Runtime

# What stands there at the first look, and what an earlier run's tasks commit until ours have fenced them, is left over.
LOOKS_AT_LEFTOVERS = 2
# A task without traffic commits one offset each second, so three of these stand still only where no task works.
SIGN_OF_LIFE_SECONDS = 3.0
TO_WORK_BESIDE = "stop it, or wait for it with --stand-by; to take over from it, give this one a larger generation"


def sign_of_life_seconds(commit_seconds: float) -> float:
    """Return how long to look before nobody works: a partition with records commits only each `commit_seconds`."""
    return max(SIGN_OF_LIFE_SECONDS, 2 * commit_seconds)


class Equals(Enum):
    """What becomes of this run and others of its generation."""

    REPLACED = auto()
    """The latest of them works."""
    GO_FIRST = auto()
    """This run works when they are gone."""
    REFUSED = auto()
    """This run works only where there are none."""


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
        self._sight = Sight(runtime.monotonic)
        self._looks = 0
        self._seen: dict[Partition, CommittedOffset | None] = {}
        self._rival, self._rivals = NOBODY, Life(self._sight, runtime.timings.gone)
        self.takeover = Takeover(me, self._sight, runtime.timings.gone)
        """What runs of other generations do."""
        self._equals = Equals.REPLACED
        self._must_look_for = 0.0

    def look(self, offsets: Mapping[Partition, CommittedOffset | None]) -> None:
        """
        Take in the committed offset of every partition; None where there is none.

        Raises:
            ForeignSink: somebody writes the group's records to another sink.
            Superseded: a run of the same generation that started later is at work, and this one replaces its equals.
            ServiceRuns: a run of the same generation is at work, and this one is to work only where there is none.
        """
        self._sight.opens()
        moved = {
            partition: owner_of(committed)
            for partition, committed in offsets.items()
            if committed is not None and committed != self._seen.get(partition)
        }
        for partition, owner in moved.items():
            if owner.sink not in ("", self._me.sink):
                raise self._foreign_sink(partition, owner)
        self.takeover.look(moved)
        known = moved.keys() & self._seen.keys() if self._looks >= LOOKS_AT_LEFTOVERS else set()
        self._meet({owner for partition in known if self._is_equal(owner := moved[partition])})
        self._seen |= offsets
        self._looks += 1

    def lose_sight(self) -> None:
        """Take in that Kafka does not answer us: until it does, nobody is silent, and nobody is known to be absent."""
        self._sight.is_lost()

    def look_before_work(self, commit_seconds: float, *, refuse: bool) -> None:
        """
        Leave the work to whoever of our generation does it: wait until they are gone, or refuse to work at all.

        Args:
            commit_seconds: how often a partition with records commits.
            refuse: whether to refuse.
        """
        self._equals = Equals.REFUSED if refuse else Equals.GO_FIRST
        self._must_look_for = sign_of_life_seconds(commit_seconds)

    def work(self) -> None:
        """Replace whoever else of our generation works from now on."""
        self._equals, self._must_look_for = Equals.REPLACED, 0.0

    @property
    def stands_by(self) -> bool:
        """Whether this run leaves the work to any other one of its generation, also to one that started earlier."""
        return self._equals is not Equals.REPLACED

    @property
    def must_look(self) -> bool:
        """Whether it is too soon to say that nobody else works; where no offset names another run, it is not."""
        named = any(owner_of(each) not in (NOBODY, self._me) for each in self._seen.values())
        return named and self._sight.seconds() < self._must_look_for

    @property
    def goes_first(self) -> Owner | None:
        """The run of our generation to which we leave the work; None if there is none, or we do not stand by."""
        return self.rival if self.stands_by else None

    @property
    def rival(self) -> Owner | None:
        """Another run of our generation that is at work, a later one only where we stand by; None if there is none."""
        return self._rival if self._rivals.goes_on else None

    def _is_equal(self, owner: Owner) -> bool:
        return owner not in (NOBODY, self._me) and owner.generation == self._me.generation

    def _meet(self, others: set[Owner]) -> None:
        self._rivals.look(sign=bool(others))
        if not others:
            return
        self._rival = max(others)
        if self._equals is Equals.REFUSED:
            raise ServiceRuns(f"{self._rival} works for group {self._group!r}", TO_WORK_BESIDE)
        if self._rival > self._me and self._equals is Equals.REPLACED:
            msg = f"a later run of the service works for group {self._group!r}: {self._rival}; this one is {self._me}"
            raise Superseded(
                msg, "stop one of them, or give it another group.id; to take over, give it a larger generation"
            )

    def _foreign_sink(self, partition: Partition, owner: Owner) -> ForeignSink:
        cause = (
            f"group {self._group!r} writes to {self._me.sink!r} here, but the offset of {partition} was committed by "
            f"{owner}: two services would split the records between two sinks"
        )
        changed = "if the sink was changed on purpose, stop the other service and set the offsets to themselves"
        return ForeignSink(cause, f"choose another group.id; or, {changed}: {reset_group()}")
