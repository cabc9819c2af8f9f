"""The real clients of a task, made inside it: never before a fork, never shipped."""

from __future__ import annotations

from app.kafka.consumer import PlainConsumer
from app.kafka.producer import AcknowledgedWriter, TransactionalWriter
from app.model import Guarantee, Job, Partition


class KafkaClients:
    """Makes consumer and writers as the job's guarantee asks for them."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def consumer(self) -> PlainConsumer:
        """Make the task's consumer."""
        return PlainConsumer(self._job)

    def writer(self, partition: Partition, consumer: PlainConsumer) -> TransactionalWriter | AcknowledgedWriter:
        """Make the writer of one source partition."""
        kind = TransactionalWriter if self._job.guarantee is Guarantee.EXACTLY_ONCE else AcknowledgedWriter
        return kind(self._job, partition, consumer.client)
