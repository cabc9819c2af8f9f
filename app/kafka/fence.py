"""The fence: the driver's one means to end a task, and the end of what a crash left open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]  # not in its __all__

from app.errors import NotUsable
from app.kafka import settings
from app.kafka.admin import ANSWER_SECONDS, AdminConnection
from app.kafka.failures import error_of, of_cluster
from app.kafka.writers import connect
from app.model import Partition
from app.runtime import REAL, Runtime

FENCE_SECONDS = 3.0
FENCES_AT_ONCE = 16
LIMIT = "transaction.max.timeout.ms"


class KafkaFence:
    """Initialises the transactional ids of partitions, which shuts out their owners (InitProducerId, KIP-98)."""

    def __init__(
        self, kafka: Mapping[str, str], group: str, transaction_seconds: float, topic: str, runtime: Runtime = REAL
    ) -> None:
        self._kafka = kafka
        self._group = group
        self._transaction_seconds = transaction_seconds
        self._topic = topic
        self._runtime = runtime

    def refuse_short_transactions(self) -> None:
        """
        Make sure that the brokers allow transactions as long as ours; changes nothing. What we may not ask is allowed.

        Raises:
            NotUsable: they allow only shorter ones: no task could ever open a partition.
            Unreachable: Kafka does not answer.
        """
        ours, longest = round(self._transaction_seconds * 1000), self._longest_transaction()
        if longest is not None and longest < ours:
            msg = f"transaction.timeout is {ours} ms, and the brokers' {LIMIT} is {longest} ms"
            cure = f"set transaction.timeout to {longest // 1000}s or less, or {LIMIT} of the brokers to {ours} or more"
            raise NotUsable(msg, cure)

    def _longest_transaction(self) -> int | None:
        """Return how many milliseconds a transaction may take; None where we may not ask."""
        connection = AdminConnection(self._kafka)
        cluster = connection.client.describe_cluster(request_timeout=ANSWER_SECONDS)
        node = min(each.id for each in connection.answer(cluster, "describing the cluster").nodes)
        resource = ConfigResource(ResourceType.BROKER, str(node))
        described = connection.client.describe_configs([resource], request_timeout=ANSWER_SECONDS)
        try:
            return int(connection.wait(described[resource])[LIMIT].value)
        except KafkaException as error:
            if error_of(error).code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return None
            raise connection.failure(error, f"reading the configuration of broker {node}") from error

    def fence(self, partitions: Iterable[Partition]) -> bool:
        """
        Shut out whoever owns these partitions, and end what a crash left open there; return whether one was reached.

        A task that is fenced drops what it has not committed and reports; nothing is lost. Where Kafka is away, the
        partition's next owner does the same. So after FENCES_AT_ONCE partitions that were not reached, the others are
        not tried: an outage costs the time of a few fences, however many partitions there are.

        Raises:
            NotUsable: Kafka refuses that, and a person must act: no task could open the partition either.
        """
        missed: list[Partition] = []

        def reaches(partition: Partition) -> bool:
            if len(missed) >= FENCES_AT_ONCE:
                return False
            reached = self._fence_one(partition)
            if not reached:
                missed.append(partition)
            return reached

        with self._runtime.threads(FENCES_AT_ONCE, "winnow-fence") as threads:
            return any(list(threads.map(reaches, partitions)))

    def _fence_one(self, partition: Partition) -> bool:
        own = {"enable.idempotence": True} | settings.fencing(self._group, self._transaction_seconds, partition)
        producer = Producer(settings.common(self._kafka) | own, logger=settings.SILENT)
        try:
            connect(producer, self._topic, FENCE_SECONDS)
            producer.init_transactions(FENCE_SECONDS)
        except KafkaException as error:
            failure = of_cluster(error, f"opening a transactional producer for {partition}")
            if isinstance(failure, NotUsable):
                raise failure from error
            return False
        return True
