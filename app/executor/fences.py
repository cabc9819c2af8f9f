"""What a task makes of its fenced partitions: it ends, unless a later generation takes them over one by one."""

from __future__ import annotations

from collections.abc import Callable

from app.errors import NotUsable, Unreachable
from app.model import Owner, Partition
from app.offsets.contract import OffsetStore
from app.offsets.metadata import owner_of

# A later generation commits in its own name a moment after its fence. The driver's fence, which ends the task, comes to
# its control partition first: there one look is enough. With any other partition a task has this much patience.
PATIENCE_SECONDS = 1.0


class Fences:
    """
    Learns from the committed offset of a fenced partition who has fenced it.

    Args:
        owner: the run that the task works for.
        offsets: where the committed offsets are.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, owner: Owner, offsets: OffsetStore, clock: Callable[[], float]) -> None:
        self._owner = owner
        self._offsets = offsets
        self._clock = clock
        self._since: dict[Partition, float] = {}
        self.taken: set[Partition] = set()
        """The partitions that a later generation has taken over."""
        self.end_the_task = False
        """Whether somebody else has fenced one: our driver, or an equal service."""

    def look(self, partition: Partition, *, once: bool) -> None:
        """Look who has fenced a partition, `once` or again and again; call it until it is taken or the task ends."""
        since = self._since.setdefault(partition, self._clock())
        if self._is_taken(partition):
            self.taken.add(partition)
        elif once or self._clock() - since >= PATIENCE_SECONDS:
            self.end_the_task = True

    def _is_taken(self, partition: Partition) -> bool:
        try:
            found = self._offsets.load([partition], stable=True)
        except (NotUsable, Unreachable):
            return False
        return owner_of(found.get(partition)).generation > self._owner.generation
