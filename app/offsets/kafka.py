"""The default store: the consumer group's offsets in Kafka, which move inside the transaction of their records."""

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
from app.kafka.failures import KAFKA, SINK, error_of, is_refusal, of_cluster, of_partition
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from app.offsets.failures import refuse_to_go_back, saving
from app.runtime import REAL
from app.watchdog import in_time

# The driver asks again soon; a task that opens has nothing else to do.
DRIVER_SECONDS, TASK_SECONDS = 5.0, 10.0
# What an offset commit may take, inside a transaction once every record is acknowledged; usually 2 ms.
COMMIT_SECONDS = 5.0


class KafkaGroupOffsets:
    """
    The offsets of a consumer group, on the cluster that is written to.

    A broker takes no offset of a topic that it does not know. Where the source is on another cluster, an empty
    placeholder stands for each source topic.

    An admin client could read them too, but its list_consumer_group_offsets crashes the process (librdkafka 2.16,
    rd_kafka_cgrp_op with no group) while a restarted coordinator loads. A consumer has a group, and is safe.

    Args:
        context: what the store is opened for; with a task's consumer, the store uses that one as long as it answers.
    """

    transactional = True

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._seconds = DRIVER_SECONDS if context.consumer is None else TASK_SECONDS
        self._cluster = SINK if context.placeholder else KAFKA
        self._readers: dict[bool, Consumer] = {}
        self._spare: dict[bool, list[Consumer]] = {True: [], False: []}
        self._crowded = False
        """Whether each read of a task has a consumer of its own: one that waits would keep the others waiting."""
        self._lock = threading.Lock()
        self._commits = threading.Lock()
        self._last_commit: Future[object] = Future()
        self._last_commit.set_result(None)

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        """
        Return the group's offset of each partition that has one.

        `stable` waits for transactions that are about to move an offset (KIP-447): librdkafka asks for that where the
        consumer reads committed records only. While hundreds of partitions commit there is always one.

        Raises:
            Unreachable, NotUsable: Kafka does not answer, or refuses.
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
            KafkaException: as librdkafka raises it; the writer knows what it means for its transaction.
        """
        self._send(producer, self._at(partition, offset, metadata))

    def save_beside(self, producer: Producer, partition: Partition, offset: int) -> None:
        """
        Send the offset of a partition that is no source, so that Kafka writes the end of the transaction beside it.

        Raises:
            KafkaException: as librdkafka raises it.
        """
        self._send(producer, TopicPartition(*partition, offset))

    def _send(self, producer: Producer, at: TopicPartition) -> None:
        group = self._reader(stable=True).consumer_group_metadata()
        with in_time(COMMIT_SECONDS, "send_offsets_to_transaction"):
            producer.send_offsets_to_transaction([at], group, COMMIT_SECONDS)

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        """
        Commit the offset without a transaction, unless the group is further already.

        Raises:
            Fenced: the group's offset is larger.
            Transient: the commit failed, or its outcome is unknown.
        """
        with saving(partition, offset):
            stored = self.load([partition], stable=True).get(partition)
        refuse_to_go_back(partition, stored, offset)
        self.reset(partition, offset, metadata)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        """
        Commit the offset without a transaction, even if that goes back.

        Raises:
            Transient: the commit failed, or its outcome is unknown.
        """
        try:
            self._commit(self._at(partition, offset, metadata))
        except KafkaException as error:
            raise of_partition(error, partition, "committing the offset", offset) from error

    def _commit(self, at: TopicPartition) -> None:
        """
        Commit in a thread of its own, and give up in time.

        Where a broker dies before it answers, the call does not return until that broker is back. Then librdkafka 2.16
        repeats the commit. So no newer commit begins before that: the offset would go back. A task calls this in a
        thread already, and goes on without it once it is overdue.
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
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error  # noqa: SLF001

    def close(self) -> None:
        """Close the consumers that the store made itself, unless a commit hangs: then `close` would hang, too."""
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
        """Lend a consumer for a read; one that has failed is not lent again."""
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
        """Return why Kafka does not let us ask the group's coordinator: the question itself only times out."""
        if self._context.consumer is not None:
            return None  # it is the task's, which polls it
        message = reader.poll(0)
        error = None if message is None else message.error()
        return error if error is not None and is_refusal(error) else None

    def _drop_reader(self, stable: bool, failure: Exception) -> None:  # noqa: FBT001  # the key of a reader
        """
        Connect again after an outage or a refusal.

        A client whose only broker was killed may never answer again, and one that was refused tells it only once.
        """
        if isinstance(failure, NotAllowed | Unreachable):
            with self._lock:
                self._readers.pop(stable, None)
                self._crowded = True
