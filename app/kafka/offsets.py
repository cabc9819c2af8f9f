"""The default store: the consumer group's offsets in Kafka, committed in the transaction of their records."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property, partial
from shlex import quote

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from app.cures import KafkaTools
from app.errors import NotUsable, Unreachable
from app.kafka import settings
from app.kafka.failures import error_of, is_refusal, of_cluster, of_partition, timed_out
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from app.offsets.failures import refuse_to_go_back, saving
from app.runtime import REAL
from app.watchdog import in_time

# The driver soon asks again; a task that opens has nothing else to do.
DRIVER_SECONDS, TASK_SECONDS = 5.0, 10.0
# The timeout of an offset commit; in a transaction, once every record is acknowledged, it usually takes 2 ms.
COMMIT_SECONDS = 5.0
LONG_SECONDS = 1.0
"""How long others wait for the reader that all share."""
NEVER = -math.inf


class KafkaGroupOffsets:
    """
    The offsets of a consumer group on the sink's cluster.

    Brokers reject offsets of topics they do not have. If the source is on another cluster, an empty placeholder topic
    represents each source topic.

    Offsets are read with consumers of its own: an admin client's list_consumer_group_offsets crashes the process
    (librdkafka 2.16, rd_kafka_cgrp_op with no group) while a restarted coordinator loads, and a call that hangs would
    lock a task's consumer.
    """

    transactional = True

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._in_task = context.planned is not None
        # A task reads unstable offsets before it fences, and stable ones after, so it connects for both at once.
        self._idle = {stable: [self._connect(stable=stable)] if self._in_task else [] for stable in (True, False)}
        self._turns = threading.Condition()
        self._lent_at = NEVER
        """When the reader that all share was lent; NEVER while it is idle."""
        self._commits = threading.Lock()
        self._last_commit: Future[object] = Future()
        self._last_commit.set_result(None)

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        """
        Read the group's offsets.

        librdkafka requires stable offsets (KIP-447) if the consumer is read_committed. While hundreds of partitions
        commit, some transaction is always pending.
        """
        names = {(self._context.topic(each.topic), each.number): each for each in partitions}
        wanted = [TopicPartition(*there) for there in names]
        try:
            found = self._ask(wanted, stable=stable) if wanted else []
        except KafkaException as error:
            raise self._of_group(error, f"reading the offsets of group {self._context.group!r}") from error
        return {
            names[at.topic, at.partition]: CommittedOffset(at.offset, at.metadata or "")
            for at in found
            if at.offset >= 0
        }

    def _ask(self, wanted: list[TopicPartition], *, stable: bool) -> list[TopicPartition]:
        with self._lent(stable=stable) as reader:
            try:
                found = reader.committed(wanted, TASK_SECONDS if self._in_task else DRIVER_SECONDS)
            except KafkaException as error:
                # If Kafka rejects requests to the coordinator, this one only times out, and a message says why.
                said = None if (message := reader.poll(0)) is None else message.error()
                raise KafkaException(said if said and is_refusal(said) else error_of(error)) from error
            for at in found:
                if at.error is not None:
                    raise KafkaException(KafkaError(at.error.code(), f"{at.topic}-{at.partition}: {at.error.str()}"))
            return found

    def save_in_transaction(self, producer: Producer, partition: Partition, offset: int, metadata: str) -> None:
        self._send(producer, self._at(partition, offset, metadata))

    def save_beside(self, producer: Producer, partition: Partition, offset: int) -> None:
        self._send(producer, TopicPartition(*partition, offset))

    def _send(self, producer: Producer, at: TopicPartition) -> None:
        with in_time(COMMIT_SECONDS, "send_offsets_to_transaction"):
            producer.send_offsets_to_transaction([at], self._member, COMMIT_SECONDS)

    @cached_property
    def _member(self) -> object:
        """The group without a membership, which is always the same."""
        with self._lent(stable=True) as reader:
            return reader.consumer_group_metadata()

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        with saving(partition, offset):
            stored = self.load([partition], stable=True).get(partition)
        refuse_to_go_back(partition, stored, offset)
        self.reset(partition, offset, metadata)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        try:
            self._commit(self._at(partition, offset, metadata))
        except KafkaException as error:
            if is_refusal(error_of(error)) and not self._in_task:
                raise self._of_group(error, f"committing the offset of {partition}", partition.topic) from error
            raise of_partition(error, partition, "committing the offset", offset) from error

    def _of_group(self, error: KafkaException, doing: str, topic: str = "") -> NotUsable | Unreachable:
        """Return what an error means for the service, with the command that grants a missing right."""
        failure = of_cluster(error, doing, self._context.kafka)
        resources = {
            KafkaError.GROUP_AUTHORIZATION_FAILED: f"--group {quote(self._context.group)}",
            KafkaError.TOPIC_AUTHORIZATION_FAILED: f"--topic {quote(self._context.topic(topic))}" if topic else "",
        }
        if resource := resources.get(error_of(error).code()):
            failure.cure = KafkaTools.of(self._context.kafka).allow(["Read"], resource)
        return failure

    def _commit(self, at: TopicPartition) -> None:
        """
        Commit, and give up after a timeout.

        If a broker dies before it answers, the call returns only when that broker is back, and librdkafka 2.16 then
        repeats the commit. So the driver starts no newer commit before, or the offset would go back. A task calls this
        in a thread that it abandons once it is overdue.
        """
        if self._in_task:
            with in_time(COMMIT_SECONDS, "commit"):
                self._commit_now(at)
            return
        with self._commits:
            try:
                self._last_commit.exception(COMMIT_SECONDS)
                self._last_commit = REAL.background(partial(self._commit_now, at))
                self._last_commit.result(COMMIT_SECONDS)
            except TimeoutError as error:
                raise timed_out() from error

    def _commit_now(self, at: TopicPartition) -> None:
        with self._lent(stable=True) as reader:
            reader.commit(offsets=[at], asynchronous=False)

    def close(self) -> None:
        """Close the store's consumers, except one whose commit hangs: then closing would hang, too."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()

    def _at(self, partition: Partition, offset: int, metadata: str) -> TopicPartition:
        return TopicPartition(self._context.topic(partition.topic), partition.number, offset, metadata)

    @contextmanager
    def _lent(self, *, stable: bool) -> Iterator[Consumer]:
        """
        Lend a reader. One serves all who need not wait long, because each has connections of its own.

        Nobody waits longer than LONG_SECONDS: then there is another one. One that failed is not lent again: a client
        whose only broker was killed may never answer, and a rejected one reports it only once.
        """
        with self._turns:
            patience = max(0.0, self._lent_at + LONG_SECONDS - time.monotonic())
            shared = self._turns.wait_for(lambda: self._lent_at == NEVER, patience)
            reader = self._idle[stable].pop() if self._idle[stable] else self._connect(stable=stable)
            if shared:
                self._lent_at = time.monotonic()
        try:
            yield reader
            self._idle[stable].append(reader)
        finally:
            if shared:
                with self._turns:
                    self._lent_at = NEVER
                    self._turns.notify()

    def _connect(self, *, stable: bool) -> Consumer:
        isolation: settings.Settings = {"isolation.level": "read_committed" if stable else "read_uncommitted"}
        configured = settings.reader(self._context.kafka, self._context.group) | isolation
        return Consumer(configured, logger=settings.SILENT)
