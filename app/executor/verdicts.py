"""Says beside the offset why its partition is blocked, for whoever looks there without the service: `winnow lag`."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from app.errors import WinnowError
from app.executor.clients import C, Clients
from app.executor.lane import Lane
from app.model import CommittedOffset, Owner, Receipt
from app.offsets.contract import OffsetStore
from app.offsets.metadata import OffsetMetadata


def tell(lane: Lane, clients: Clients[C], offsets: OffsetStore, owner: Owner) -> None:
    """
    Commit the offset of a blocked lane once more, with the reason; the next commit behind it takes that away.

    Whoever has taken the partition over meanwhile judges it anew, and is left alone. If Kafka is away, nothing is said.
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
            metadata = replace(OffsetMetadata.parse(committed.metadata), blocked=reason)
            writer.commit(committed.offset, str(metadata))
    finally:
        writer.discard()


def _committed(receipt: Receipt, offsets: OffsetStore, owner: Owner) -> CommittedOffset | None:
    """Return the offset that the lane has committed; None where it has committed none, or another one stands there."""
    found = offsets.load([receipt.partition], stable=True).get(receipt.partition)
    if found is None or found.offset != receipt.end or not receipt.metadata:
        return None
    return found if OffsetMetadata.parse(found.metadata).owner == owner else None
