"""Hands records to librdkafka with confluent-kafka's calls, one for each: the `plain` way, which works everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from app.kafka import settings
from app.model import Partition, TaskConfig
from app.records import DeadLetter, Lines

MakeProducer = Callable[..., Producer]
"""Makes librdkafka's producer, as the class itself does; who wants to look at its calls hands in another."""


class PlainSender:
    """
    Queues the records of one source partition, and waits for their delivery.

    What is not delivered shows when the transaction is committed; `ReportingPlainSender` is for where there is none.
    """

    def __init__(
        self,
        task_config: TaskConfig,
        partition: Partition,
        configured: settings.Settings,
        producer: MakeProducer = Producer,
    ) -> None:
        self.client = producer(configured, logger=settings.SILENT)
        self.undelivered: KafkaError | None = None
        """Why a record was not delivered; None also where nobody asks."""
        self._sink, self.dead_letters = task_config.sink.topic, task_config.dead_letters.topic
        self._sink_partition = partition.number % task_config.sink.partitions
        self._dead_partition = partition.number % task_config.dead_letters.partitions

    def offer(self, lines: Lines, begin: int) -> int:
        """
        Queue lines for the sink from one on; return the first that found the queue full, or how many there are.

        Raises:
            KafkaException: librdkafka refuses the next line.
        """
        topic, partition, produce = self._sink, self._sink_partition, self.client.produce
        rows = lines.rows[begin:]
        values, keys = lines.values.slice(begin).to_pylist(), lines.keys.take(rows).to_pylist()
        # librdkafka reads the timestamp 0 as "now", which is what a record without one gets.
        stamps = lines.timestamps[rows].clip(0).tolist()
        # by position: by keyword the call costs half as much again
        for number, (value, key, stamp) in enumerate(zip(values, keys, stamps, strict=True), begin):
            try:
                produce(topic, value, key, partition, None, None, stamp)
            except BufferError:
                return number
        return len(lines)

    def offer_dead_letters(self, dead_letters: Sequence[DeadLetter], begin: int) -> int:
        """Queue rejects for the dead-letter topic, as `offer` does."""
        for number, dead_letter in enumerate(dead_letters[begin:], begin):
            try:
                self.client.produce(
                    self.dead_letters,
                    dead_letter.value,
                    dead_letter.key,
                    self._dead_partition,
                    timestamp=max(dead_letter.timestamp, 0),
                    headers=list(dead_letter.headers),
                )
            except BufferError:
                return number
        return len(dead_letters)

    def serve(self, seconds: float) -> None:
        """Hear what became of records that were queued; wait at most so long for news."""
        self.client.poll(seconds)

    def deliver_all(self, seconds: float) -> int:
        """Wait until all that is queued was delivered, or was not; return how much is still open after so long."""
        return self.client.flush(seconds)

    def close(self) -> None:
        """Let the client go; it ends with its last reference."""


class ReportingPlainSender(PlainSender):
    """Also hears of each record that was not delivered."""

    def __init__(
        self,
        task_config: TaskConfig,
        partition: Partition,
        configured: settings.Settings,
        producer: MakeProducer = Producer,
    ) -> None:
        # confluent-kafka keeps a callback that is only run for failures cheap: successes stay inside its C code.
        failures_only: dict[str, Any] = {"on_delivery": self._note_failure, "delivery.report.only.error": True}
        super().__init__(task_config, partition, configured | failures_only, producer)

    def _note_failure(self, error: KafkaError | None, _message: Message) -> None:
        self.undelivered = self.undelivered or error
