"""Makes the Kafka clients of a task, inside it: never before a fork, never shipped."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Producer

from app.kafka import settings
from app.kafka.backend import Backend, best_backend
from app.kafka.consumer import TaskConsumer
from app.kafka.delivery import FlushedDelivery, MakeClient
from app.kafka.hanging import HangingTransactions
from app.kafka.sender import Targets
from app.kafka.writers import AcknowledgedWriter, TransactionalWriter
from app.model import Guarantee, Partition, TaskConfig
from app.offsets import registry
from app.offsets.contract import OffsetStore, StoreContext, is_transactional


class TaskClients:
    """
    Makes the clients of one task, as the delivery guarantee asks for them.

    Args:
        config: what the task works with.
        backend: how records pass between librdkafka and us; by default the fastest one that works here.
        producer: makes confluent-kafka's producer from its settings.
    """

    def __init__(
        self, config: TaskConfig, backend: Backend | None = None, producer: Callable[..., Producer] = Producer
    ) -> None:
        self._config = config
        self._backend = backend or best_backend(config.kafka)
        self._producer = producer
        self._hanging = HangingTransactions(config.kafka, config.group)

    def consumer(self) -> TaskConsumer:
        """Return the task's consumer."""
        return self._backend.consumer(self._config)

    def offsets(self, consumer: TaskConsumer) -> OffsetStore:
        """Return the store of the task's offsets; a store in Kafka shares the task's consumer."""
        config = self._config
        return registry.open_store(config.offset_store, StoreContext(config.group, config.kafka, consumer.client))

    def writer(self, partition: Partition, offsets: OffsetStore) -> TransactionalWriter | AcknowledgedWriter:
        """Return the writer of one source partition."""
        config, backend = self._config, self._backend
        targets = Targets.of(config, partition)
        if config.guarantee is Guarantee.EXACTLY_ONCE:
            assert is_transactional(offsets)  # the configuration refuses any other store
            transactional = FlushedDelivery(self._maker(settings.transactional_producer(config, partition)))
            sender = backend.sender(transactional.client, targets)
            return TransactionalWriter(partition, sender, transactional, offsets, self._hanging)
        reporting = backend.reporting(self._maker(settings.producer(config)))
        return AcknowledgedWriter(partition, backend.sender(reporting.client, targets), reporting, offsets)

    def _maker(self, configured: settings.Settings) -> MakeClient:
        """Return what makes a producer with these settings, and with those that its delivery reports need."""
        return lambda own: self._producer(configured | own, logger=settings.SILENT)
