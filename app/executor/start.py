"""What may not have happened to a committed offset between the driver's plan and the opening of a lane."""

from __future__ import annotations

from app.errors import CorruptOffset, OffsetMoved
from app.model import CommittedOffset, Partition


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
