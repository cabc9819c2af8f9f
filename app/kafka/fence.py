"""The fence: the driver's one means to end a task, and the end of what a crash left open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import compress

from confluent_kafka import KafkaError, KafkaException, Producer

from app.errors import NotUsable
from app.kafka import settings
from app.kafka.admin import AdminConnection
from app.kafka.delivery import connect
from app.kafka.failures import KAFKA, error_of, of_cluster
from app.model import Partition
from app.runtime import REAL, Runtime

FENCE_SECONDS = 3.0
FENCES_AT_ONCE = 16
LIMIT = "transaction.max.timeout.ms"
# The largest that librdkafka takes, and more than any broker allows that has not been told to.
TOO_LONG_MS = (1 << 31) - 1
NO_PARTITION = -1


class KafkaFence:
    """Initialises the transactional ids of partitions, which shuts out their owners (InitProducerId, KIP-98)."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        group: str,
        transaction_seconds: float,
        topic: str,
        runtime: Runtime = REAL,
        *,
        cluster: str = KAFKA,
    ) -> None:
        self._kafka = kafka
        self._group = group
        self._transaction_seconds = transaction_seconds
        self._topic = topic
        self._runtime = runtime
        self._cluster = cluster

    def refuse_short_transactions(self) -> None:
        """
        Make sure that the brokers allow transactions as long as ours; changes nothing. What we may not ask is allowed.

        Raises:
            NotUsable: they allow only shorter ones: no task could ever open a partition.
            Unreachable: Kafka does not answer.
        """
        ours = round(self._transaction_seconds * 1000)
        told = AdminConnection(self._kafka, self._cluster).broker_setting(LIMIT)
        longest = ours if told is None else int(told)
        if longest < ours:
            msg = f"transaction.timeout is {ours} ms, but the brokers' {LIMIT} is {longest} ms"
            cure = f"set transaction.timeout to {longest // 1000}s or less, or the brokers' {LIMIT} to at least {ours}"
            raise NotUsable(msg, cure)

    def refuse_forbidden_ids(self) -> None:
        """
        Make sure that we may use the group's transactional ids.

        It asks for a transaction that is longer than any broker allows. A broker that may be asked for it refuses that
        before it writes anything. The id belongs to no partition, so nobody would be fenced anyway.

        Raises:
            NotAllowed: we may not.
            Unreachable: Kafka does not answer.
        """
        try:
            self._open(Partition(self._topic, NO_PARTITION), {"transaction.timeout.ms": TOO_LONG_MS})
        except KafkaException as error:
            if error_of(error).code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                return
            doing = f"opening a transactional producer of group {self._group!r}"
            raise of_cluster(error, doing, cluster=self._cluster) from error

    def fence(self, partitions: Iterable[Partition]) -> set[Partition]:
        """
        Shut out whoever owns these partitions, and end what a crash left open there; return those that were reached.

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

        wanted = list(partitions)
        with self._runtime.threads(FENCES_AT_ONCE, "winnow-fence") as threads:
            return set(compress(wanted, threads.map(reaches, wanted)))

    def _fence_one(self, partition: Partition) -> bool:
        try:
            self._open(partition)
        except KafkaException as error:
            doing = f"opening a transactional producer for {partition}"
            failure = of_cluster(error, doing, cluster=self._cluster)
            if isinstance(failure, NotUsable):
                raise failure from error
            return False
        return True

    def _open(self, partition: Partition, own: settings.Settings | None = None) -> None:
        fencing = settings.fencing(self._group, self._transaction_seconds, partition) | (own or {})
        configured = settings.common(self._kafka) | {"enable.idempotence": True} | fencing
        producer = Producer(configured, logger=settings.SILENT)
        connect(producer, self._topic, FENCE_SECONDS)
        producer.init_transactions(FENCE_SECONDS)
