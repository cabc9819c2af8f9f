"""How a writer learns whether its records were delivered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from app.kafka.consumer import CONTROL_SECONDS

MakeClient = Callable[[dict[str, Any]], Producer]
"""Makes a producer with additional settings."""


def connect(client: Producer, topic: str, seconds: float = CONTROL_SECONDS) -> None:
    """
    Connect a new client, so that init_transactions finds a broker to ask for the coordinator; raises KafkaException.

    Without one, librdkafka retries after a fixed 500 ms (rd_kafka_txn_coord_timer). The first answer names the brokers
    and ends the bootstrap connection; the second arrives on the connection that will be used. Any topic will do, but
    since a thousand producers may ask, one with few partitions is best.
    """
    deadline = time.monotonic() + seconds
    for _ in range(2):
        client.list_topics(topic, max(0.1, deadline - time.monotonic()))


class Delivery:
    """A producer and its delivery reports; reads none: an undelivered record fails its transaction."""

    def __init__(self, make: MakeClient) -> None:
        self.client = make({})

    @property
    def undelivered(self) -> KafkaError | None:
        """Why a record was not delivered. In a transaction always None, because the commit fails instead."""
        return None

    def serve(self, seconds: float) -> None:
        """Take delivery reports, which frees the records; wait at most `seconds` for the first."""
        self.client.poll(seconds)

    def deliver_all(self, seconds: float) -> int:
        """Wait until every queued record is delivered or has failed; return how many are open after `seconds`."""
        return self.client.flush(seconds)

    def close(self) -> None:
        """Release librdkafka's objects, so that the producer can be destroyed: none here."""


class CallbackDelivery(Delivery):
    """Learns of failures by a callback; confluent-kafka handles successes in C."""

    def __init__(self, make: MakeClient) -> None:
        self._told = told = _Told()  # not self, which has the client: it would end only when garbage is collected
        super().__init__(lambda _: make({"on_delivery": told.remember, "delivery.report.only.error": True}))

    @property
    def undelivered(self) -> KafkaError | None:
        return self._told.error


class _Told:
    """The first error of a delivery."""

    # confluent-kafka may call back with a fatal error pending, and Python then searches no base class.
    error: KafkaError | None = None

    def remember(self, error: KafkaError | None, _message: Message) -> None:
        self.error = self.error or error
