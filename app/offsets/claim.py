"""
A writer's claim to the offset of a partition, where no transaction fences earlier owners.

Each offset names the run of the service that saved it. A writer checks that before each save, so the first save of a
later run fences the earlier one: as with transactions, a partition changes hands once.
"""

from __future__ import annotations

from collections.abc import Callable

from app.errors import Fenced, Transient
from app.model import NOBODY, CommittedOffset, Owner, Partition
from app.offsets.contract import OffsetStore
from app.offsets.failures import refuse_to_go_back, saving
from app.offsets.metadata import OffsetMetadata


class Claim:
    """Saves a partition's offset for the run `me` as long as no later run has saved it since the writer began."""

    def __init__(self, store: OffsetStore, partition: Partition, me: Owner) -> None:
        self._store, self._partition, self._me = store, partition, me
        self._known: CommittedOffset | None = None

    def begin(self, committed: CommittedOffset | None, fence: Callable[[], None]) -> None:
        """
        Begin with this offset, after a `fence` of an earlier run that may save it in a transaction. Raises as `save`.

        The offset is saved again as it is: in a store that can only be read, every retry would write the same lines.
        """
        self._known = committed
        if committed is None:
            return
        if self._store.transactional and OffsetMetadata.of(committed).owner.rank < self._me.rank:
            fence()
        self.save(committed.offset, committed.metadata)

    def save(self, offset: int, metadata: str) -> None:
        """
        Save the next offset to read.

        Raises:
            Fenced: a later run took the partition over, or another task of this run got further.
            CorruptOffset: the store holds something other than an offset.
            Transient: it is unknown whether the offset was saved, or somebody else saved a larger one.
        """
        with saving(self._partition, offset):
            stored = self._store.load([self._partition], stable=True).get(self._partition)
        if stored is not None and not stored.corrupt and stored != self._known:
            yield_to_later(self._partition, stored, self._me)
            other = OffsetMetadata.of(stored).owner
            if other != self._me and stored.offset > offset:
                who = "another program" if other == NOBODY else other
                cause = f"{who} has since committed {stored.offset}; the partition goes on there"
                raise Transient(self._partition, cause, offset)
        refuse_to_go_back(self._partition, stored, offset)
        # Kafka cannot compare and store in one request; its `save` would only load the offset once more.
        save = self._store.reset if self._store.transactional else self._store.save
        save(self._partition, offset, metadata)
        self._known = CommittedOffset(offset, metadata)

    def reset(self, offset: int, metadata: str) -> None:
        self._store.reset(self._partition, offset, metadata)
        self._known = CommittedOffset(offset, metadata)


def yield_to_later(partition: Partition, committed: CommittedOffset | None, me: Owner) -> None:
    """Leave a partition to a later run: raise Fenced if one has committed its offset."""
    owner = OffsetMetadata.of(committed).owner
    if committed is not None and owner.rank > me.rank:
        raise Fenced(partition, f"{owner} has taken the partition over; nothing is lost", committed.offset)
