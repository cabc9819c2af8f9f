"""Decides where a lane starts, and refuses unexpected changes of its committed offset since the driver's plan."""

from __future__ import annotations

from app.errors import CorruptOffset, OffsetMoved
from app.model import CommittedOffset, OffsetRange, Partition


def refuse_moved_offset(partition: Partition, known: int | None, committed: CommittedOffset | None) -> None:
    """
    Require that the committed offset still exists and is not below the one that the driver saw.

    Raises:
        OffsetMoved: it was moved back or deleted.
        CorruptOffset: the stored value is not an offset.
    """
    if committed is None:
        if known is not None:
            raise OffsetMoved(partition, "the committed offset vanished", known)
        return
    if committed.corrupt:
        raise CorruptOffset(partition, committed.corrupt, known)
    if known is not None and committed.offset < known:
        raise OffsetMoved(partition, f"the committed offset went back to {committed.offset}", known)


def first_position(offset_range: OffsetRange, committed: CommittedOffset | None, *, stored: bool) -> int:
    """Return the planned start if the offset is still the planned one and not `stored` since; otherwise the offset."""
    if committed is None or (committed.offset == offset_range.committed and not stored):
        return offset_range.start
    return committed.offset
