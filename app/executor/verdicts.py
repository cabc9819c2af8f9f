"""Says beside the offset why its partition is blocked, for whoever looks there without the service: `winnow lag`."""

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
    Commit the offset of a blocked lane once more, with the reason; the next commit behind it takes that away.

    The offset may still be that of an earlier run, where the first records are to blame. A later run that has taken the
    partition over judges it anew, and is left alone. If Kafka is away, nothing is said.
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
    Return the offset that a lane stands at; None where it never began, or another one stands there.

    Raises:
        Fenced: a later run has committed it.
    """
    found = offsets.load([receipt.partition], stable=True).get(receipt.partition)
    yield_to_later(receipt.partition, found, owner)
    return found if found is not None and found.offset == receipt.end and receipt.metadata else None
