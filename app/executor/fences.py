"""What a task does about fenced partitions: it ends, unless a later generation takes them over one by one."""

from __future__ import annotations

from collections.abc import Callable

from app.errors import NotUsable, Unreachable
from app.model import Owner, Partition
from app.offsets.contract import OffsetStore
from app.offsets.metadata import OffsetMetadata

# A later generation commits in its own name a moment after it fences. The driver ends a task by fencing its control
# partition first, so one look is enough there. For any other partition the task waits this long.
PATIENCE_SECONDS = 1.0


class Fences:
    """Learns from the committed offset of a fenced partition whether a later generation than `owner` has fenced it."""

    def __init__(self, owner: Owner, offsets: OffsetStore, clock: Callable[[], float]) -> None:
        self._owner = owner
        self._offsets = offsets
        self._clock = clock
        self._since: dict[Partition, float] = {}
        self.taken: set[Partition] = set()
        """The partitions that a later generation has taken over."""
        self.end_the_task = False
        """Whether our driver or a service of the same generation has fenced a partition."""

    def look(self, partition: Partition, *, once: bool) -> None:
        """Check who fenced a partition, only `once` or until PATIENCE_SECONDS. Call it until either field is set."""
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
        return OffsetMetadata.of(found.get(partition)).owner.generation > self._owner.generation
