"""The committed offsets that a plan is made with."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.errors import Unreachable
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore


def committed_offsets(
    store: OffsetStore, partitions: Collection[Partition], *, stable: bool
) -> Mapping[Partition, CommittedOffset]:
    """
    Return the committed offset of each partition that has one: stable ones, if so wanted and if they can be read.

    A transaction that hangs keeps one from being read for ever. Its partition is then planned with the offset before
    it: the task ends that transaction, and reads the offset again (`app.executor.task`).

    Raises:
        Unreachable, NotUsable: the store does not answer, or refuses.
    """
    try:
        return store.load(partitions, stable=stable)
    except Unreachable:
        if not (stable and store.transactional):
            raise
    return store.load(partitions, stable=False)
