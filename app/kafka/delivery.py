"""How a writer learns what became of the records that it queued."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import KafkaError, Message, Producer

from app.kafka.consumer import CONTROL_SECONDS

MakeClient = Callable[[dict[str, Any]], Producer]
"""Makes a producer with further settings."""


def connect(client: Producer, topic: str, seconds: float = CONTROL_SECONDS) -> None:
    """
    Connect a new client, so that init_transactions finds a broker that it can ask for the coordinator.

    Without one, librdkafka tries again after a fixed 500 ms (rd_kafka_txn_coord_timer). The first answer names the
    brokers and ends the bootstrap connection; the second comes through the connection that will be used. Any topic
    will do, but a thousand producers ask: one with few partitions is best.

    Raises:
        KafkaException: Kafka does not answer within so many seconds.
    """
    deadline = time.monotonic() + seconds
    for _ in range(2):
        client.list_topics(topic, max(0.1, deadline - time.monotonic()))


class Delivery(Protocol):
    """A producer, and its delivery reports."""

    client: Producer
    undelivered: KafkaError | None
    """Why a record was not delivered; always None in a transaction, whose commit fails instead."""

    def serve(self, seconds: float) -> None:
        """Take delivery reports, which frees the records; wait at most so long for the first."""
        ...

    def deliver_all(self, seconds: float) -> int:
        """Wait until every queued record was delivered or has failed; return how many are open after so long."""
        ...

    def close(self) -> None:
        """Release what belongs to librdkafka; afterwards the producer may end."""
        ...


class FlushedDelivery:
    """Asks nothing: a record that was not delivered makes its transaction fail. No Python call for any record."""

    undelivered: KafkaError | None = None

    def __init__(self, make: MakeClient) -> None:
        self.client = make({})

    def serve(self, seconds: float) -> None:
        """Take delivery reports, which frees the records."""
        self.client.poll(seconds)

    def deliver_all(self, seconds: float) -> int:
        """Wait until every queued record was delivered or has failed; return how many are open after so long."""
        return self.client.flush(seconds)

    def close(self) -> None:
        """Release nothing: the producer ends with its last reference."""


class CallbackDelivery(FlushedDelivery):
    """Reports failures by a callback; confluent-kafka handles successes inside its C code."""

    def __init__(self, make: MakeClient) -> None:
        super().__init__(lambda _: make({"on_delivery": self._remember, "delivery.report.only.error": True}))

    def _remember(self, error: KafkaError | None, _message: Message) -> None:
        self.undelivered = self.undelivered or error
