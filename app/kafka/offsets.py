"""The default store: the consumer group's offsets in Kafka, committed in the transaction of their records."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from itertools import chain

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from app.errors import NotAllowed, Unreachable
from app.kafka import settings
from app.kafka.failures import KAFKA, SINK, error_of, is_refusal, of_cluster, of_partition, timed_out
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from app.offsets.failures import refuse_to_go_back, saving
from app.runtime import REAL
from app.watchdog import in_time

# The driver soon asks again; a task that opens has nothing else to do.
DRIVER_SECONDS, TASK_SECONDS = 5.0, 10.0
# The timeout of an offset commit; in a transaction, once every record is acknowledged, it usually takes 2 ms.
COMMIT_SECONDS = 5.0


class KafkaGroupOffsets:
    """
    The offsets of a consumer group on the sink's cluster.

    Brokers reject offsets of topics they do not have. If the source is on another cluster, an empty placeholder topic
    represents each source topic.

    Offsets are read with a consumer: an admin client's list_consumer_group_offsets crashes the process (librdkafka
    2.16, rd_kafka_cgrp_op with no group) while a restarted coordinator loads. The store uses a task's consumer as long
    as that answers.
    """

    transactional = True

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._seconds = DRIVER_SECONDS if context.consumer is None else TASK_SECONDS
        self._cluster = SINK if context.placeholder else KAFKA
        self._readers: dict[bool, Consumer] = {}
        self._spare: dict[bool, list[Consumer]] = {True: [], False: []}
        self._crowded = False
        """Whether each read of a task gets its own consumer, because a blocked read would delay the others."""
        self._lock = threading.Lock()
        self._commits = threading.Lock()
        self._last_commit: Future[object] = Future()
        self._last_commit.set_result(None)

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        """
        Read the group's offsets; see `OffsetStore.load`.

        librdkafka requires stable offsets (KIP-447) if the consumer is read_committed. While hundreds of partitions
        commit, some transaction is always pending.
        """
        names = {(self._context.topic(each.topic), each.number): each for each in partitions}
        wanted = [TopicPartition(*there) for there in names]
        try:
            found = self._ask(wanted, stable=stable) if wanted else []
        except KafkaException as error:
            doing = f"reading the offsets of group {self._context.group!r}"
            failure = of_cluster(error, doing, cluster=self._cluster)
            self._drop_reader(stable, failure)
            raise failure from error
        return {
            names[at.topic, at.partition]: CommittedOffset(at.offset, at.metadata or "")
            for at in found
            if at.offset >= 0
        }

    def _ask(self, wanted: list[TopicPartition], *, stable: bool) -> list[TopicPartition]:
        with self._lent(stable=stable) as reader:
            try:
                found = reader.committed(wanted, self._seconds)
            except KafkaException as error:
                raise KafkaException(self._refusal(reader) or error_of(error)) from error
            for at in found:
                if at.error is not None:
                    raise KafkaException(KafkaError(at.error.code(), f"{at.topic}-{at.partition}: {at.error.str()}"))
            return found

    def save_in_transaction(self, producer: Producer, partition: Partition, offset: int, metadata: str) -> None:
        """
        Send the offset as part of the producer's open transaction.

        Raises:
            KafkaException: from librdkafka; the writer knows what it means for its transaction.
        """
        self._send(producer, self._at(partition, offset, metadata))

    def save_beside(self, producer: Producer, partition: Partition, offset: int) -> None:
        """
        Send the offset of a partition that is not a source, so that Kafka writes the transaction's end marker to the
        group's offsets.

        Raises:
            KafkaException: from librdkafka.
        """
        self._send(producer, TopicPartition(*partition, offset))

    def _send(self, producer: Producer, at: TopicPartition) -> None:
        group = self._reader(stable=True).consumer_group_metadata()
        with in_time(COMMIT_SECONDS, "send_offsets_to_transaction"):
            producer.send_offsets_to_transaction([at], group, COMMIT_SECONDS)

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        """Commit the offset without a transaction unless the group's is larger; see `OffsetStore.save`."""
        with saving(partition, offset):
            stored = self.load([partition], stable=True).get(partition)
        refuse_to_go_back(partition, stored, offset)
        self.reset(partition, offset, metadata)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        """Commit the offset without a transaction; see `OffsetStore.reset`."""
        try:
            self._commit(self._at(partition, offset, metadata))
        except KafkaException as error:
            raise of_partition(error, partition, "committing the offset", offset) from error

    def _commit(self, at: TopicPartition) -> None:
        """
        Commit in a separate thread, and give up after a timeout.

        If a broker dies before it answers, the call returns only when that broker is back, and librdkafka 2.16 then
        repeats the commit. So no newer commit may start before, or the offset would go back. A task already calls this
        in a thread that it abandons once it is overdue.
        """
        if self._context.consumer is not None:
            with in_time(COMMIT_SECONDS, "commit"):
                self._context.consumer.commit(offsets=[at], asynchronous=False)
            return
        with self._commits:
            try:
                self._last_commit.exception(COMMIT_SECONDS)
                reader = self._reader(stable=True)
                self._last_commit = REAL.background(partial(reader.commit, offsets=[at], asynchronous=False))
                self._last_commit.result(COMMIT_SECONDS)
            except TimeoutError as error:
                raise timed_out() from error

    def close(self) -> None:
        """Close the store's own consumers, unless a commit hangs: then closing would hang, too."""
        with self._lock:
            while self._readers:
                _, reader = self._readers.popitem()
                if self._last_commit.done():
                    reader.close()
            for reader in chain.from_iterable(self._spare.values()):
                reader.close()

    def _at(self, partition: Partition, offset: int, metadata: str) -> TopicPartition:
        return TopicPartition(self._context.topic(partition.topic), partition.number, offset, metadata)

    @contextmanager
    def _lent(self, *, stable: bool) -> Iterator[Consumer]:
        """Lend a consumer for a read; one that failed is not lent again."""
        if self._context.consumer is None or (stable and not self._crowded):
            yield self._reader(stable=stable)
            return
        with self._lock:
            reader = self._spare[stable].pop() if self._spare[stable] else self._connect(stable=stable)
        yield reader
        with self._lock:
            self._spare[stable].append(reader)

    def _reader(self, *, stable: bool) -> Consumer:
        if self._context.consumer is not None:
            consumer: Consumer = self._context.consumer
            return consumer
        with self._lock:
            if stable not in self._readers:
                self._readers[stable] = self._connect(stable=stable)
            return self._readers[stable]

    def _connect(self, *, stable: bool) -> Consumer:
        isolation = "read_committed" if stable else "read_uncommitted"
        own = {"group.id": self._context.group, "isolation.level": isolation, "enable.auto.commit": False}
        return Consumer(settings.common(self._context.kafka) | own, logger=settings.SILENT)

    def _refusal(self, reader: Consumer) -> KafkaError | None:
        """Return why Kafka rejects requests to the group's coordinator; the request itself only times out."""
        if self._context.consumer is not None:
            return None  # the task polls it
        message = reader.poll(0)
        error = None if message is None else message.error()
        return error if error is not None and is_refusal(error) else None

    def _drop_reader(self, stable: bool, failure: Exception) -> None:  # noqa: FBT001  # the key of a reader
        """
        Connect again after an outage or a rejection.

        A client whose only broker was killed may never answer again, and a rejected one reports it only once.
        """
        if isinstance(failure, NotAllowed | Unreachable):
            with self._lock:
                self._readers.pop(stable, None)
                self._crowded = True
