"""The real clients of a task, made inside it: never before a fork, never shipped."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from app.kafka.consumer import PlainConsumer
from app.kafka.producer import AcknowledgedWriter, TransactionalWriter
from app.model import Guarantee, Job, Partition


class KafkaClients:
    """
    Makes consumer and writers as the job's guarantee asks for them.

    Args:
        job: what all tasks have in common.
        producer: what makes librdkafka's producer from its settings.
    """

    def __init__(self, job: Job, producer: Callable[..., Producer] = Producer) -> None:
        self._job = job
        self._producer = producer

    def consumer(self) -> PlainConsumer:
        """Make the task's consumer."""
        return PlainConsumer(self._job)

    def writer(self, partition: Partition, consumer: PlainConsumer) -> TransactionalWriter | AcknowledgedWriter:
        """Make the writer of one source partition."""
        kind = TransactionalWriter if self._job.guarantee is Guarantee.EXACTLY_ONCE else AcknowledgedWriter
        return kind(self._job, partition, consumer.client, self._producer)
