"""The writer without transactions: it waits for every acknowledgement, and saves the offset afterwards."""

from __future__ import annotations

import contextlib

from confluent_kafka import KafkaException

from app.kafka.delivery import Delivery
from app.kafka.failures import of_writing
from app.kafka.sender import Sender
from app.kafka.writers import Writer
from app.model import Partition
from app.offsets.contract import Committed, OffsetStore, nobody


class AcknowledgedWriter(Writer):
    """At least once: the offset moves after every record before it was acknowledged."""

    def __init__(
        self,
        partition: Partition,
        sender: Sender,
        delivery: Delivery,
        offsets: OffsetStore,
        committed: Committed = nobody,
    ) -> None:
        super().__init__(partition, sender, delivery, committed=committed)
        self._offsets = offsets

    def open(self) -> None:
        """Do nothing: without transactions there is no fence."""

    def settle(self, committed: int | None) -> None:
        """Do nothing: without transactions none can hang."""

    def end_pending(self, committed: int | None) -> None:
        """Do nothing: without transactions none of ours keeps an offset from being read."""

    def commit(self, offset: int, metadata: str) -> None:
        """
        Wait until everything sent is acknowledged, then save the next offset to read.

        Raises:
            Fenced: another owner has saved a larger offset; it goes on.
            Transient: a record was not delivered, or the offset not saved. Go back to the saved offset.
        """
        self._acknowledge(offset)
        self._offsets.save(self._partition, offset, metadata)
        self._committed(self._partition, offset, metadata)

    def reset(self, offset: int, metadata: str) -> None:
        """Save an offset even if that goes back; raises what `commit` does, except Fenced."""
        self._acknowledge(offset)
        self._offsets.reset(self._partition, offset, metadata)
        self._committed(self._partition, offset, metadata)

    def _acknowledge(self, offset: int) -> None:
        with self._translated(f"committing up to offset {offset}"):
            self._deliver_all()
            if self._delivery.undelivered is not None:
                raise of_writing(self._delivery.undelivered, self._partition, "delivering a record", offset)

    def discard(self) -> None:
        """Drop what is not delivered; the client ends with its last reference."""
        with contextlib.suppress(KafkaException):
            self._client.purge()
            self._delivery.serve(0)  # each report that nobody takes keeps its producer, whose threads go on
        self._close()
