"""Reads the committed offsets for a plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.errors import Unreachable
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore


def committed_offsets(
    store: OffsetStore, partitions: Collection[Partition], *, stable: bool
) -> Mapping[Partition, CommittedOffset]:
    """
    Return the committed offset of each partition that has one, `stable` if possible.

    A hanging transaction blocks reading a stable offset. Its partition is then planned from the last offset before the
    transaction; the task ends the transaction and reads the offset again (`app.executor.task`).

    Raises:
        Unreachable, NotUsable: the store is not responding or refuses.
    """
    try:
        return store.load(partitions, stable=stable)
    except Unreachable:
        if not (stable and store.transactional):
            raise
    return store.load(partitions, stable=False)
