"""
Writers: one per source partition, and the only code that begins, commits or aborts a transaction.

Both kinds have the same verbs. `TransactionalWriter` commits output and offset in one transaction;
`AcknowledgedWriter` waits for every acknowledgement and then commits the offset.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from app.errors import PartitionError, Transient
from app.kafka import settings
from app.kafka.failures import error_of, of_partition, raised
from app.kafka.plain.consumer import CONTROL_SECONDS
from app.kafka.plain.sender import PlainSender
from app.model import Partition
from app.records import DeadLetter, Lines
from app.watchdog import in_time

# A request that was sent again may arrive again, late, and librdkafka has no KIP-890 part 2: a late EndTxn or
# TxnOffsetCommit would hit a later transaction of the same epoch. librdkafka waits before it sends again, at least 0.8
# times its back-off: a commit that took less was sent once. After any other the producer is replaced: a new epoch.
SENT_AGAIN_SECONDS = 0.8 * settings.RETRY_BACKOFF_MS / 1000
# How long librdkafka's queue may stay full before the broker counts as gone.
FULL_QUEUE_SECONDS = 30.0
FULL_QUEUE_PAUSE = 0.05
# What each of the two calls of a commit may take once everything is acknowledged; usually 2 ms.
COMMIT_SECONDS = 5.0
ABORT_SECONDS = 5.0


def connect(client: Producer, topic: str, seconds: float = CONTROL_SECONDS) -> None:
    """
    Connect a new client, so that init_transactions finds a broker to ask for the coordinator.

    With none at hand librdkafka tries again after a fixed 500 ms (rd_kafka_txn_coord_timer). The first answer names the
    brokers and ends the bootstrap connection; the second comes through the connection that will be used. Any topic will
    do: best one that has few partitions, because each of a thousand producers asks.

    Raises:
        KafkaException: Kafka does not answer.
    """
    for _ in range(2):
        client.list_topics(topic, seconds)


class Writer:
    """What both kinds offset_range: sending, and patience while librdkafka's queue is full."""

    def __init__(self, partition: Partition, sender: PlainSender) -> None:
        self._partition = partition
        self._sender = sender
        self._client = sender.client
        self.suspect = False
        """Whether the client must be replaced although its last commit succeeded."""

    def send(self, lines: Lines) -> None:
        """
        Queue cleansed lines for the sink, in order.

        Raises:
            Fenced, Transient: what was open is lost.
        """
        with self._translated("sending to the sink"):
            self._offer_all(partial(self._sender.offer, lines), len(lines))

    def send_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> None:
        """
        Queue rejected records for the dead-letter topic, in order.

        Raises:
            Fenced, Transient: what was open is lost.
        """
        with self._translated("sending to the dead letters"):
            self._offer_all(partial(self._sender.offer_dead_letters, dead_letters), len(dead_letters))

    def free(self) -> None:
        """
        Let go of what was delivered: librdkafka keeps it until it is asked what became of it.

        Raises:
            Fenced, Transient: what was open is lost.
        """
        with self._translated("asking what was delivered"):
            self._sender.serve(0)

    def _offer_all(self, offer: Callable[[int], int], count: int) -> None:
        """Offer from the first on; where the queue was full, go on from there when there is room."""
        at, deadline = offer(0), time.monotonic() + FULL_QUEUE_SECONDS
        self._sender.serve(0)
        while at < count:
            if time.monotonic() > deadline:
                raise Transient(self._partition, f"nothing could be delivered for {FULL_QUEUE_SECONDS:.0f} s")
            self._sender.serve(FULL_QUEUE_PAUSE)
            came_to = offer(at)
            if came_to > at:
                at, deadline = came_to, time.monotonic() + FULL_QUEUE_SECONDS

    @contextlib.contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (KafkaException, SystemError) as error:
            raise of_partition(self._root(raised(error)), self._partition, doing) from error

    def _root(self, error: KafkaException) -> KafkaException:
        """Ask for the reason of a fatal state: `produce` says only that there is one, a fence shows behind it."""
        if error_of(error).code() == KafkaError._FATAL:  # noqa: SLF001
            try:
                self._client.abort_transaction(1.0)
            except KafkaException as reason:
                return reason
        return error

    def _deliver_all(self) -> None:
        left = self._sender.deliver_all(CONTROL_SECONDS)
        if left:
            raise Transient(self._partition, f"{left} records were not acknowledged within {CONTROL_SECONDS:.0f} s")


class TransactionalWriter(Writer):
    """Exactly once: output, dead letters and offset become visible together or not at all."""

    def __init__(self, partition: Partition, sender: PlainSender, consumer: Consumer) -> None:
        super().__init__(partition, sender)
        self._consumer = consumer
        self._open = False

    def open(self) -> None:
        """
        Fence every earlier owner of the partition and end what it left open (InitProducerId, KIP-98).

        Raises:
            Fenced, Transient: the partition is not ours.
        """
        with self._translated("opening the producer"):
            connect(self._client, self._sender.dead_letters)
            with in_time(CONTROL_SECONDS):
                self._client.init_transactions(CONTROL_SECONDS)

    def send(self, lines: Lines) -> None:
        """Queue cleansed lines inside the transaction."""
        self._begin()
        super().send(lines)

    def send_dead_letters(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Queue rejected records inside the same transaction."""
        self._begin()
        super().send_dead_letters(dead_letters)

    def commit(self, offset: int, metadata: str) -> None:
        """
        Commit output, dead letters and the next offset to read, all in one transaction.

        Raises:
            Fenced: nothing was committed, another owner goes on.
            Transient: the outcome may be unknown: open the partition anew and ask for its committed offset.
        """
        self._begin()
        position = TopicPartition(*self._partition, offset, metadata)
        with self._translated(f"committing up to offset {offset}"):
            self._deliver_all()
            started = time.monotonic()
            metadata = self._consumer.consumer_group_metadata()
            with in_time(COMMIT_SECONDS):
                self._client.send_offsets_to_transaction([position], metadata, COMMIT_SECONDS)
            with in_time(COMMIT_SECONDS):
                self._client.commit_transaction(COMMIT_SECONDS)
        self._open = False
        self.suspect = time.monotonic() - started >= SENT_AGAIN_SECONDS

    def discard(self) -> None:
        """Abort what is open, if the broker still listens; the client ends with its last reference."""
        if self._open:
            # A fenced or disconnected producer cannot abort; the next owner's open() does it then.
            with contextlib.suppress(PartitionError), self._translated("aborting"), in_time(ABORT_SECONDS):
                self._client.purge()
                self._client.abort_transaction(ABORT_SECONDS)
            self._open = False
        self._sender.close()

    def _begin(self) -> None:
        if not self._open:
            with self._translated("beginning a transaction"):
                self._client.begin_transaction()
            self._open = True


class AcknowledgedWriter(Writer):
    """At least once: the offset follows when every record before it is acknowledged."""

    def __init__(self, partition: Partition, sender: PlainSender, consumer: Consumer) -> None:
        super().__init__(partition, sender)
        self._consumer = consumer

    def open(self) -> None:
        """Do nothing: without transactions there is no fence."""

    def commit(self, offset: int, metadata: str) -> None:
        """
        Wait until everything sent is acknowledged, then commit the next offset to read.

        Raises:
            Transient: a record was not delivered, or the offset not stored: go back to the committed offset.
        """
        with self._translated(f"committing up to offset {offset}"):
            self._deliver_all()
            if self._sender.undelivered is not None:
                raise of_partition(self._sender.undelivered, self._partition, "delivering a record", offset)
            self._consumer.commit(offsets=[TopicPartition(*self._partition, offset, metadata)], asynchronous=False)

    def discard(self) -> None:
        """Drop what is not delivered; the client ends with its last reference."""
        with contextlib.suppress(KafkaException):
            self._client.purge()
        self._sender.close()
