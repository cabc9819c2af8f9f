"""Stores with the offset why its partition is blocked, so that `winnow lag` can show it without the service."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from app.errors import WinnowError
from app.executor.clients import C, Clients
from app.executor.lane import Lane
from app.model import CommittedOffset, Owner, Receipt
from app.offsets.claim import yield_to_later
from app.offsets.contract import OffsetStore
from app.offsets.metadata import OffsetMetadata


def tell(lane: Lane, clients: Clients[C], offsets: OffsetStore, owner: Owner) -> None:
    """
    Commit the offset of a blocked lane again, with the reason. The next commit removes the reason.

    If the first records are to blame, the offset may still be an earlier run's. If a later run has taken over the
    partition, its offset is left alone. If Kafka is unavailable, nothing is stored.
    """
    lane.discard()  # its producer has the same transactional id
    receipt = lane.receipt()
    writer = clients.writer(lane.partition, offsets)
    try:
        with contextlib.suppress(WinnowError):
            if _committed(receipt, offsets, owner) is None:
                return
            writer.open()
            if (committed := _committed(receipt, offsets, owner)) is None:
                return
            writer.settle(committed)
            reason = ": ".join(each for each in (receipt.error, receipt.cure) if each)
            metadata = replace(OffsetMetadata.parse(receipt.metadata), blocked=reason)
            writer.commit(committed.offset, str(metadata))
    finally:
        writer.discard()


def _committed(receipt: Receipt, offsets: OffsetStore, owner: Owner) -> CommittedOffset | None:
    """
    Return the lane's committed offset; None if the lane never began or the offset has moved.

    Raises:
        Fenced: a later run has committed it.
    """
    found = offsets.load([receipt.partition], stable=True).get(receipt.partition)
    yield_to_later(receipt.partition, found, owner)
    return found if found is not None and found.offset == receipt.end and receipt.metadata else None
