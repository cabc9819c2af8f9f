"""The writer without transactions: it waits for every acknowledgement and then saves the offset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from confluent_kafka import KafkaException

from app.kafka.delivery import Delivery
from app.kafka.failures import of_writing
from app.kafka.sender import Sender
from app.kafka.writers import Writer
from app.model import CommittedOffset, Partition
from app.offsets.claim import Claim
from app.offsets.contract import Committed, nobody


class AcknowledgedWriter(Writer):
    """
    At least once: the offset moves after all records before it are acknowledged.

    `claim` saves it; `fence` fences an earlier, exactly-once run, which ends its transactions, and raises
    Transient if Kafka refuses or is silent.
    """

    def __init__(
        self,
        partition: Partition,
        sender: Sender,
        delivery: Delivery,
        claim: Claim,
        fence: Callable[[], None],
        *,
        committed: Committed = nobody,
    ) -> None:
        super().__init__(partition, sender, delivery, committed=committed)
        self._claim = claim
        self._fence = fence

    def open(self) -> None:
        """Do nothing: the first commit fences earlier owners."""

    def settle(self, committed: CommittedOffset | None) -> None:
        """Start at the committed offset once it can be saved, and fence an earlier run that uses transactions."""
        self._claim.begin(committed, self._fence)

    def end_pending(self, committed: int | None) -> None:  # noqa: ARG002  # it ends whichever transaction is pending
        """End an earlier run's transaction that blocks reading the offset."""
        self._fence()

    def commit(self, offset: int, metadata: str) -> None:
        self._acknowledge(offset)
        self._claim.save(offset, metadata)
        self._committed(self._partition, offset, metadata)

    def reset(self, offset: int, metadata: str) -> None:
        self._acknowledge(offset)
        self._claim.reset(offset, metadata)
        self._committed(self._partition, offset, metadata)

    def _acknowledge(self, offset: int) -> None:
        with self._translated(f"committing up to offset {offset}"):
            self._deliver_all()
            if self._delivery.undelivered is not None:
                raise of_writing(self._delivery.undelivered, self._partition, "delivering a record", offset)

    def discard(self) -> None:
        """Drop undelivered records. The client ends with its last reference."""
        with contextlib.suppress(KafkaException):
            self._client.purge()
            self._delivery.serve(0)  # a delivery report that is not taken keeps its producer and its threads alive
        self._close()
