"""Delivery reports as events of librdkafka's main queue, for records that were not produced by confluent-kafka."""

from __future__ import annotations

import time
from typing import cast

from confluent_kafka import KafkaError

from app.kafka.bulk import native
from app.kafka.delivery import MakeClient


class EventDelivery:
    """
    Takes delivery reports as events.

    Never call confluent-kafka's poll or flush here: they drop the reports of records that it did not produce.
    """

    def __init__(self, make: MakeClient) -> None:
        self.client = make({})
        self.undelivered: KafkaError | None = None
        self._handle = native.handle(self.client)
        self._reports = native.main_queue(self._handle)

    def serve(self, seconds: float) -> None:
        """Take delivery reports, which frees the records; wait at most `seconds` for the first."""
        if not self._reports:
            msg = "the delivery reports are closed"
            raise RuntimeError(msg)
        event = native.queue_poll(self._reports, int(seconds * 1000))
        while event is not None:
            if native.event_type(event) == native.DELIVERY_REPORT and native.event_error(event):
                self.undelivered = self.undelivered or native.error_of_event(event)
            native.event_destroy(event)
            event = native.queue_poll(self._reports, 0)

    def deliver_all(self, seconds: float) -> int:
        """
        Wait until every queued record is delivered or has failed; return how many are still open after `seconds`.

        Unlike flush, it cannot cut `linger.ms` short.
        """
        deadline = time.monotonic() + seconds
        while left := native.waiting(self._handle):
            self.serve(min(0.1, max(0.0, deadline - time.monotonic())))
            if time.monotonic() > deadline:
                break
        return cast("int", left)

    def close(self) -> None:
        """Release the queue, so that the producer can be destroyed."""
        if self._reports:
            native.queue_destroy(self._reports)
            self._reports = 0
