"""The fence, which ends running tasks and aborts transactions that a crash left open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import compress

from confluent_kafka import KafkaError, KafkaException, Producer

from app.cures import KafkaTools, own_ids
from app.errors import NotUsable, Unreachable, WinnowError
from app.kafka import settings
from app.kafka.admin import AdminConnection
from app.kafka.consumer import CONTROL_SECONDS
from app.kafka.delivery import connect
from app.kafka.failures import FENCED, error_of, explaining, of_cluster
from app.kafka.writers import commit_alone
from app.model import Partition
from app.offsets.contract import TransactionalOffsetStore
from app.runtime import REAL, Runtime

FENCE_SECONDS = 3.0
# librdkafka refuses these if they are longer than a transaction. A fence sends no record, so it needs none of them.
WITHIN_TRANSACTION = ("delivery.timeout.ms", "message.timeout.ms", "socket.timeout.ms")
# How long a stop takes where no broker answers: python -m tests.bench.stops.
FENCES_AT_ONCE = 16
LIMIT = "transaction.max.timeout.ms"
# The largest value that librdkafka accepts; by default brokers allow less.
TOO_LONG_MS = (1 << 31) - 1
NO_PARTITION = -1
LOOK_SECONDS = 0.02
# When librdkafka may retry. From then on a request may be in flight that would fence whichever producer opens next.
ASKED_AGAIN_SECONDS = 0.4


class KafkaFence:
    """Initialises the transactional ids of partitions, which fences their owners (InitProducerId, KIP-98)."""

    def __init__(
        self, kafka: Mapping[str, str], group: str, transaction_seconds: float, topic: str, runtime: Runtime = REAL
    ) -> None:
        self._kafka = kafka
        self._group = group
        self._transaction_seconds = transaction_seconds
        self._topic = topic
        self._runtime = runtime

    def refuse_short_transactions(self) -> None:
        ours = round(self._transaction_seconds * 1000)
        told = (AdminConnection(self._kafka).broker_settings() or {}).get(LIMIT)
        longest = ours if told is None else int(told)
        if longest < ours:
            msg = f"transaction.timeout is {ours} ms, but the brokers' {LIMIT} is {longest} ms"
            cure = f"set transaction.timeout to {longest // 1000}s or less, or the brokers' {LIMIT} to at least {ours}"
            raise NotUsable(msg, cure)

    def refuse_forbidden_ids(self) -> None:
        """
        Request a transaction longer than any broker allows.

        A broker checks the right first, and refuses the length before it writes anything. The id belongs to no
        partition, so nothing would be fenced anyway.
        """
        try:
            self._open(Partition(self._topic, NO_PARTITION), {"transaction.timeout.ms": TOO_LONG_MS})
        except KafkaException as error:
            code = error_of(error).code()
            if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                return
            doing = f"opening a transactional producer of group {self._group!r}"
            refused = of_cluster(error, doing, self._kafka)
            if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                refused.cure = KafkaTools.of(self._kafka).allow(["Write"], own_ids(self._group))
            raise refused from error

    def fence(self, partitions: Iterable[Partition]) -> set[Partition]:
        """
        Fence the owners of these partitions and abort their open transactions; return the partitions reached.

        A fenced task drops uncommitted work and reports; nothing is lost. If Kafka is unavailable, the partition's next
        owner fences instead. After FENCES_AT_ONCE partitions out of reach the others are not tried, so an outage costs
        the time of a few fences, however many partitions there are.
        """
        return self._each(partitions, lambda *_: True)

    def renew(self, partitions: Iterable[Partition], offsets: TransactionalOffsetStore) -> set[Partition]:
        """
        Fence these partitions and commit their offsets again, unchanged; return the partitions reached.

        The commit is a transaction of the fencing producer. So an owner that opens the partition and commits between
        our read and our commit fences us, and its offset stays.
        """
        return self._each(partitions, partial(_commits_again, offsets))

    def _each(self, partitions: Iterable[Partition], then: Callable[[Producer, Partition], bool]) -> set[Partition]:
        missed: list[Partition] = []

        def reaches(partition: Partition) -> bool:
            if len(missed) >= FENCES_AT_ONCE:
                return False
            producer = self._fenced(partition)
            reached = producer is not None and then(producer, partition)
            if not reached:
                missed.append(partition)
            return reached

        wanted = list(partitions)
        with self._runtime.threads(FENCES_AT_ONCE, "winnow-fence") as threads:
            return set(compress(wanted, threads.map(reaches, wanted)))

    def _fenced(self, partition: Partition) -> Producer | None:
        """Return the producer that has fenced a partition's owners; None if Kafka does not respond."""
        try:
            with explaining(self._kafka, f"opening a transactional producer for {partition}"):
                return self._open(partition)
        except Unreachable:
            return None

    def _open(self, partition: Partition, own: settings.Settings | None = None) -> Producer:
        fencing = settings.fencing(self._group, self._transaction_seconds, partition) | (own or {})
        common = {name: value for name, value in settings.common(self._kafka).items() if name not in WITHIN_TRANSACTION}
        configured = common | {"enable.idempotence": True} | fencing
        producer = Producer(configured, logger=settings.SILENT)
        connect(producer, self._topic, FENCE_SECONDS)
        producer.init_transactions(FENCE_SECONDS)
        return producer


def interrupt(make: Callable[..., Producer], configured: settings.Settings, topic: str) -> None:
    """
    Fence the running producer of a transactional id, and have its transaction aborted, before its successor opens.

    While the coordinator aborts that transaction, it refuses new producers with CONCURRENT_TRANSACTIONS. librdkafka
    2.16 retries only after half a second (rd_kafka_idemp_pid_timer_restart), while readers wait, but the abort takes
    about 20 ms. So another producer asks first and is thrown away as soon as it is refused.

    `configured` are the settings of a producer with that id; `topic` is any topic, for the first request.
    Raises KafkaException if Kafka does not respond or denies access.
    """
    client = make(configured, logger=settings.SILENT)
    connect(client, topic)
    until = time.monotonic() + ASKED_AGAIN_SECONDS
    while time.monotonic() < until:
        try:
            return client.init_transactions(LOOK_SECONDS)
        except KafkaException as error:
            if (code := error_of(error).code()) == KafkaError.CONCURRENT_TRANSACTIONS:
                return None
            if code != KafkaError._TIMED_OUT:  # noqa: SLF001
                raise
    return client.init_transactions(CONTROL_SECONDS)


def _commits_again(offsets: TransactionalOffsetStore, producer: Producer, partition: Partition) -> bool:
    """Return whether the offset of a fenced partition was committed again, or needs no renewal from us."""
    try:
        at = offsets.load([partition], stable=True).get(partition)
        if at is not None and not at.corrupt:
            commit_alone(producer, offsets, partition, at)
    except KafkaException as error:
        error.with_traceback(None)  # confluent-kafka never frees the error of a fatal producer; see `Writer`
        return error_of(error).code() in FENCED  # the new owner commits
    except WinnowError:
        return False
    return True
