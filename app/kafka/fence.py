"""The fence: the driver's one means to end a task, and the end of what a crash left open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException, Producer

from app.kafka import settings
from app.kafka.writers import connect
from app.model import Partition
from app.runtime import REAL, Runtime

FENCE_SECONDS = 3.0
FENCES_AT_ONCE = 16


class KafkaFence:
    """Initialises the transactional ids of partitions, which shuts out their owners (InitProducerId, KIP-98)."""

    def __init__(
        self, kafka: Mapping[str, str], group: str, transaction_seconds: float, runtime: Runtime = REAL
    ) -> None:
        self._kafka = kafka
        self._group = group
        self._transaction_seconds = transaction_seconds
        self._runtime = runtime

    def fence(self, partitions: Iterable[Partition]) -> bool:
        """
        Shut out whoever owns these partitions, and end what a crash left open there; return whether one was reached.

        A task that is fenced drops what it has not committed and reports; nothing is lost. Where Kafka is away, the
        partition's next owner does the same.
        """
        with self._runtime.threads(FENCES_AT_ONCE, "winnow-fence") as threads:
            return any(list(threads.map(self._fence_one, partitions)))

    def _fence_one(self, partition: Partition) -> bool:
        own = {"enable.idempotence": True} | settings.fencing(self._group, self._transaction_seconds, partition)
        producer = Producer(settings.common(self._kafka) | own, logger=settings.SILENT)
        try:
            connect(producer, partition.topic, FENCE_SECONDS)
            producer.init_transactions(FENCE_SECONDS)
        except KafkaException:
            return False
        return True
