"""Makes the Kafka clients of a task, inside it: clients must not cross a fork or be shipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from confluent_kafka import KafkaError, Producer

from app.errors import NotUsable, Transient
from app.kafka import settings
from app.kafka.acknowledged import AcknowledgedWriter
from app.kafka.backend import Backend, best_backend
from app.kafka.consumer import TaskConsumer
from app.kafka.delivery import Delivery
from app.kafka.failures import explaining, is_about
from app.kafka.fence import KafkaFence, interrupt
from app.kafka.hanging import HangingTransactions
from app.kafka.sender import Targets
from app.kafka.writers import TransactionalWriter
from app.model import Guarantee, OffsetRange, Partition, TaskConfig
from app.offsets import registry
from app.offsets.claim import Claim
from app.offsets.contract import OffsetStore, StoreContext, is_transactional
from app.offsets.mirrors import mirrors_in, write_forward

# Any broker allows such a transaction.timeout.
FENCE_SECONDS = 10.0


class TaskClients:
    """
    Makes the clients of one task for the configured delivery guarantee.

    Args:
        backend: by default the fastest one that works here.
        producer: makes confluent-kafka's producer from its settings.
        ranges: what the task will read, with the offsets that the driver planned with.
        in_use: whether another service is working on the partitions, so that its transactions are open.
    """

    def __init__(
        self,
        config: TaskConfig,
        backend: Backend | None = None,
        producer: Callable[..., Producer] = Producer,
        ranges: Sequence[OffsetRange] = (),
        *,
        in_use: bool = False,
    ) -> None:
        self._config = config
        self._lanes = max(1, len(ranges))
        self._planned = {each.partition: planned for each in ranges if (planned := each.planned) is not None}
        self._mirrors = mirrors_in(config.mirrors, StoreContext(config.group, config.kafka), write_forward)
        self._backend = backend or best_backend(config.kafka, config.output_kafka)
        self._producer = producer
        self._in_use = in_use
        self._hanging = HangingTransactions(config.output_kafka, config.group)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Wait briefly for the offset mirrors, and end what does not end with the lanes."""
        self._mirrors.close()
        self._hanging.close()

    def consumer(self) -> TaskConsumer:
        with explaining(self._config.kafka):
            return self._backend.consumer(self._config)

    def offsets(self) -> OffsetStore:
        config = self._config
        context = StoreContext(config.group, config.output_kafka, self._planned, config.placeholder)
        with explaining(config.output_kafka):
            return registry.open_store(config.offset_store, context)

    def writer(self, partition: Partition, offsets: OffsetStore) -> TransactionalWriter | AcknowledgedWriter:
        config, targets, committed = self._config, Targets.of(self._config, partition), self._mirrors.put
        if config.guarantee is Guarantee.EXACTLY_ONCE:
            assert is_transactional(offsets)  # the configuration refuses any other store
            configured = settings.transactional_producer(config, partition, lanes=self._lanes)
            delivery = Delivery(partial(self._make, configured))
            sender = self._backend.sender(delivery.client, targets)
            interrupting = partial(self._interrupt, configured, targets) if self._in_use else None
            return TransactionalWriter(
                partition, sender, delivery, offsets, self._hanging, committed=committed, interrupt=interrupting
            )
        configured = settings.acknowledged_producer(config, lanes=self._lanes)
        delivery = self._backend.reporting(partial(self._make, configured))
        sender = self._backend.sender(delivery.client, targets)
        claim, fence = Claim(offsets, partition, config.owner), partial(self._end_transactions, partition)
        return AcknowledgedWriter(partition, sender, delivery, claim, fence, committed=committed)

    def _end_transactions(self, partition: Partition) -> None:
        """Fence a producer with the partition's transactional id; raises Transient if Kafka refuses or is silent."""
        config = self._config
        # At least once, transaction.timeout means nothing, and may be longer than the brokers allow.
        fence = KafkaFence(config.output_kafka, config.group, FENCE_SECONDS, config.dead_letters.topic)
        try:
            reached = fence.fence([partition])
        except NotUsable as error:
            if is_about(error, {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}):
                return  # at-least-once needs no right to the ids; without it no run was exactly-once
            raise Transient(partition, error.cause, cure=error.cure) from error
        if not reached:
            raise Transient(partition, "no broker responded while ending the transactions of an earlier run")

    def _interrupt(self, configured: settings.Settings, targets: Targets) -> None:
        """End the transaction of a running owner, once everything needed afterwards is ready."""
        self._hanging.connect({targets.sink.topic, targets.dead_letters.topic})
        interrupt(self._producer, configured, targets.dead_letters.topic)

    def _make(self, configured: settings.Settings, own: dict[str, Any]) -> Producer:
        with explaining(self._config.output_kafka):
            return self._producer(configured | own, logger=settings.SILENT)
