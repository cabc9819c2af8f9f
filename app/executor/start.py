"""Where a lane starts, and what may not have happened to its committed offset since the driver's plan."""

from __future__ import annotations

from app.errors import CorruptOffset, OffsetMoved
from app.model import CommittedOffset, OffsetRange, Partition


def refuse_surprise(partition: Partition, known: int | None, committed: CommittedOffset | None) -> None:
    """
    Require that the committed offset is still there, and no smaller than it was known to be.

    Raises:
        OffsetMoved: somebody moved it back or deleted it.
        CorruptOffset: what is stored is not an offset any more.
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
    """Return the planned start while the offset is that of the plan, not `stored` since; otherwise the offset."""
    if committed is None or (committed.offset == offset_range.committed and not stored):
        return offset_range.start
    return committed.offset
