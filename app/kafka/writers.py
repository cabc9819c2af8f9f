"""
The writers, one for each source partition. Transactions begin, commit and abort only in this file.

`TransactionalWriter` commits output and offset in one transaction. The writer of `app.kafka.acknowledged` waits for
every acknowledgement and then saves the offset.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from app.errors import OffsetPending, PartitionError, Transient, Undelivered
from app.events import Event
from app.kafka import settings
from app.kafka.consumer import CONTROL_SECONDS
from app.kafka.delivery import Delivery, connect
from app.kafka.failures import FENCED, error_of, of_writing, raised
from app.kafka.hanging import Ends, HangingTransactions, mark
from app.kafka.sender import Sender
from app.model import CommittedOffset, Partition
from app.offsets.contract import Committed, TransactionalOffsetStore, nobody
from app.records import Lines, OutgoingRecord
from app.watchdog import in_time

# librdkafka has no KIP-890 part 2. If it resends a request, the first copy may arrive late, and a late EndTxn or
# TxnOffsetCommit hits a later transaction of the same epoch. librdkafka waits at least 0.8 times its back-off before it
# resends, so a faster commit was sent once. After a slower one the producer is replaced, which starts a new epoch. The
# 99th percentile of a commit is 98 ms with 8 producers, 831 ms with 64 (python -m tests.chaos.measure).
SENT_AGAIN_SECONDS = 0.8 * settings.RETRY_BACKOFF_MS / 1000
# How long a full queue of librdkafka may block the caller, which has other partitions. Usually there is room within ms.
ROOM_SECONDS = 0.25
# How long the queue may stay full before the broker counts as unavailable.
FULL_QUEUE_SECONDS = 10.0
FULL_QUEUE_PAUSE = 0.05
# The limit for commit_transaction once everything is acknowledged; usually it takes 2 ms.
COMMIT_SECONDS = 5.0
# How often to check for a lost transaction while its records are not acknowledged.
LOOK_SECONDS = 0.5
ABORT_SECONDS = 5.0
T = TypeVar("T", bound=Sized)


@dataclass(slots=True)
class _Rows:
    """Rows to queue: the function that queues them, their number, what they are called in errors, and the next row."""

    offer: Callable[[int], int]
    count: int
    doing: str
    at: int = 0


class Writer:
    """Sends records, and keeps those that find librdkafka's queue full. `committed` is called with each offset."""

    def __init__(
        self, partition: Partition, sender: Sender, delivery: Delivery, *, committed: Committed = nobody
    ) -> None:
        self._committed = committed
        self._partition = partition
        self._sender = sender
        self._delivery = delivery
        self._client = delivery.client
        self.suspect = False
        """Whether the producer must be replaced although its last commit succeeded."""
        self._left: deque[_Rows] = deque()
        self._abandoned = False

    @property
    def full(self) -> bool:
        return bool(self._left)

    @property
    def waiting(self) -> int:
        return len(self._client) + sum(rows.count - rows.at for rows in tuple(self._left))

    def send(self, lines: Lines) -> None:
        self._queue(self._sender.offer, lines, "sending to the sink")

    def send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
        self._queue(self._sender.offer_dead_letters, dead_letters, "sending to the dead letters")

    def _queue(self, offer: Callable[[T, int], int], rows: T, doing: str) -> None:
        self._left.append(_Rows(partial(offer, rows), len(rows), doing))
        self._send_left(ROOM_SECONDS)

    def send_rest(self) -> None:
        """Queue what did not fit before; that may take FULL_QUEUE_SECONDS and longer."""
        self._send_left(FULL_QUEUE_SECONDS)
        if self._left:
            where = self._sender.targets
            raise Undelivered(self._partition, f"nothing could be delivered to {where} for {FULL_QUEUE_SECONDS:.0f} s")

    def _send_left(self, patience: float) -> None:
        """Queue what is left, in order, until all is queued or there has been no room for `patience` seconds."""
        deadline = math.inf
        while self._left:
            rows = self._left[0]
            with self._translated(rows.doing):
                came_to = rows.offer(rows.at)
                self._delivery.serve(0)
            if came_to == rows.count:
                self._left.popleft()
                continue
            if came_to > rows.at or deadline == math.inf:
                rows.at, deadline = came_to, time.monotonic() + patience
            if time.monotonic() > deadline:
                return
            self._refuse_if_abandoned()
            self._delivery.serve(FULL_QUEUE_PAUSE)

    def free(self) -> None:
        with self._translated("taking delivery reports"):
            self._delivery.serve(0)

    @contextlib.contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (KafkaException, SystemError) as error:
            # confluent-kafka never frees the error of a fatal producer; its frames would keep that producer's threads.
            raise of_writing(self._root(raised(error)), self._partition, doing) from error.with_traceback(None)

    def _root(self, error: KafkaException) -> KafkaException:
        """Return the reason for a fatal error, which `produce` does not tell, but taking reports does."""
        try:
            if error_of(error).code() == KafkaError._FATAL:  # noqa: SLF001
                self._delivery.serve(0)
        except (KafkaException, SystemError) as reason:
            return raised(reason)
        return error

    def _close(self) -> None:
        self._sender.close()
        self._delivery.close()

    def abandon(self) -> None:
        self._abandoned = True
        with contextlib.suppress(KafkaException):
            self._client.purge(blocking=False)  # the task's own thread must not wait for librdkafka's threads

    def _refuse_if_abandoned(self) -> None:
        if self._abandoned:
            raise Transient(self._partition, "the call was abandoned")

    def _deliver_all(self) -> None:
        self.send_rest()
        deadline = time.monotonic() + CONTROL_SECONDS
        while (left := self._delivery.deliver_all(LOOK_SECONDS)) and not self._abandoned:
            self._raise_if_lost()
            if time.monotonic() > deadline:
                what = f"{left} records were not acknowledged by {self._sender.targets} within {CONTROL_SECONDS:.0f} s"
                raise Undelivered(self._partition, what)
        self._refuse_if_abandoned()

    def _raise_if_lost(self) -> None:
        """Raise the reason if the transaction is already lost; librdkafka may keep its records for a long time."""


class TransactionalWriter(Writer):
    """
    Exactly once: output, dead letters and offset become visible together or not at all.

    `hanging` finds transactions that earlier owners left open; `interrupt` ends a running one (see `app.kafka.fence`).
    """

    def __init__(
        self,
        partition: Partition,
        sender: Sender,
        delivery: Delivery,
        offsets: TransactionalOffsetStore,
        hanging: HangingTransactions,
        *,
        committed: Committed = nobody,
        interrupt: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(partition, sender, delivery, committed=committed)
        self._offsets = offsets
        self._interrupt = interrupt
        self._hanging = hanging
        self._began_at = 0
        """The committed offset at which the next transaction begins."""
        self._unsettled: Partition | None = None
        """The dead-letter partition, if it is unknown whether a transaction was left open in it."""
        self._open = False

    def open(self) -> None:
        """Fence every earlier owner of the partition and abort its open transaction (InitProducerId, KIP-98)."""
        with self._translated("opening the producer"):
            connect(self._client, self._sender.targets.dead_letter.topic)
            self._refuse_if_abandoned()  # an abandoned writer would fence the next owner
            if self._interrupt is not None:
                self._interrupt()
            with in_time(CONTROL_SECONDS, "init_transactions"):
                self._client.init_transactions(CONTROL_SECONDS)

    def settle(self, committed: CommittedOffset | None) -> None:
        """
        Abort an earlier transaction again that may still be open in our partitions, unless it was committed.

        Behind another writer's open transaction nothing shows whether it is, and aborting it twice does no harm.
        Nothing is sent to a partition whose leader does not respond, because a commit might end such a transaction.
        """
        self._began_at = 0 if committed is None else committed.offset
        targets = self._sender.targets
        ends = self._ends(targets.lines, targets.dead_letter)
        self._unsettled = targets.dead_letter if targets.dead_letter not in ends else None
        unstable = {where: at for where, at in ends.items() if at.last_stable < at.high_watermark}
        with self._translated(f"reading what is open in {', '.join(map(str, unstable))}"):
            left = self._hanging.last_offsets(self._partition, unstable)
        if hanging := [where for where, offset in left.items() if offset >= self._began_at]:
            # With sink.partitioner `key`, 0.2.0 wrote lines without the header into any partition.
            self._abort_again(list(unstable) if targets.by_key else hanging)

    def end_pending(self, committed: int | None) -> None:
        """
        End a transaction again the way its records show, because Kafka never wrote its end to the offset's partition.

        Raises OffsetPending if the records do not show how it ended.
        """
        targets = self._sender.targets
        ends = self._ends([*targets.lines, targets.dead_letter])
        with self._translated("looking for what was committed"):
            was_committed = self._hanging.was_committed(
                self._partition, ends, committed or 0, targets.before, targets.rest
            )
        if was_committed is None:
            raise OffsetPending(self._partition, offset=committed)
        with self._translated("ending a transaction whose offset is pending"):
            self._begin()
            self._offsets.save_beside(self._client, targets.dead_letter, ends[targets.dead_letter].last_stable)
            self._end_again(self._client.commit_transaction if was_committed else self._client.abort_transaction)
        Event.TRANSACTION_ENDED_AGAIN.log(**self._partition.as_json(), committed=was_committed)

    def _ends(self, needed: Sequence[Partition], *more: Partition) -> dict[Partition, Ends]:
        with self._translated(f"looking for open transactions in {self._sender.targets}"):
            ends = self._hanging.ends((*needed, *more))
        if silent := [each for each in needed if each not in ends]:
            raise Transient(self._partition, f"{silent[0]} has no leader")
        return ends

    def _abort_again(self, hanging: Sequence[Partition]) -> None:
        """Make Kafka write the missing markers: aborting one more transaction ends the hanging one too."""
        with self._translated(f"aborting a hanging transaction in {', '.join(map(str, hanging))}"):
            self._begin()
            for where in hanging:
                self._sender.offer_one(where, OutgoingRecord(b"winnow", b"", [self._header], 0))
            self._deliver_all()
            self._end_again(self._client.abort_transaction)
        Event.TRANSACTION_ABORTED_AGAIN.log(partitions=[str(where) for where in hanging])

    def _end_again(self, end: Callable[[float], object]) -> None:
        """
        End the open transaction, and with it one that hangs.

        Raises Transient if the request may have been sent twice: a late copy could end the next transaction.
        """
        started = time.monotonic()
        with in_time(ABORT_SECONDS, "end_transaction"):
            end(ABORT_SECONDS)
        self._open = False
        if time.monotonic() - started >= SENT_AGAIN_SECONDS:
            raise Transient(self._partition, "the end of a transaction may have been sent twice")

    def send(self, lines: Lines) -> None:
        self._begin()
        if self._sender.targets.by_key:  # each may be the only one of the transaction in its partition
            lines = lines.with_header(*self._header)
        super().send(lines)

    def send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
        if self._unsettled is not None:
            raise Undelivered(self._partition, f"{self._unsettled} has no leader")
        self._begin()
        super().send_dead_letters(dead_letters)

    def send_each(self, records: Sequence[tuple[Partition, OutgoingRecord]]) -> None:
        """Queue each record for its own partition, in order. Each has the header, because those may differ."""
        self._begin()
        marked = [(to, each._replace(headers=[*each.headers, self._header])) for to, each in records]
        self._queue(self._sender.offer_each, marked, "sending records")

    def commit(self, offset: int, metadata: str) -> None:
        self._begin()
        with self._translated(f"committing up to offset {offset}"):
            self._deliver_all()
            started = time.monotonic()
            self._offsets.save_in_transaction(self._client, self._partition, offset, metadata)
            with in_time(COMMIT_SECONDS, "commit_transaction"):
                self._client.commit_transaction(COMMIT_SECONDS)
        self._open = False
        self._began_at = offset
        self.suspect = time.monotonic() - started >= SENT_AGAIN_SECONDS
        self._committed(self._partition, offset, metadata)

    def reset(self, offset: int, metadata: str) -> None:
        self.commit(offset, metadata)

    def discard(self) -> None:
        """Abort the open transaction if the broker responds. The client ends with its last reference."""
        if self._open:
            # A fenced or disconnected producer cannot abort. The next owner's open() does that.
            in_its_time = in_time(ABORT_SECONDS, "abort_transaction")
            with contextlib.suppress(PartitionError), self._translated("aborting"), in_its_time:
                self._client.purge()
                self._client.abort_transaction(ABORT_SECONDS)
            self._open = False
        self._close()

    def _root(self, error: KafkaException) -> KafkaException:
        """Return the reason for a lost transaction: `produce` reports only the loss, other calls give the reason."""
        code = error_of(error).code()
        try:
            if code == KafkaError._FATAL:  # noqa: SLF001
                self._client.abort_transaction(1.0)
            elif code == KafkaError._STATE:  # noqa: SLF001
                self._client.begin_transaction()
        except KafkaException as reason:
            error = reason
        return self._fence_behind(error) if error_of(error).code() == KafkaError.UNKNOWN else error

    def _fence_behind(self, unknown: KafkaException) -> KafkaException:
        """
        Return the fence behind an unknown error, if there is one; the answer to an abort shows it.

        Kafka 4.3 answers UNKNOWN while a fence begins (`TransactionMetadata.prepareTransitionTo`). A lane that took it
        for a fault would open again, and fence its successor.
        """
        try:
            self._client.abort_transaction(1.0)
        except KafkaException as answer:
            return answer if error_of(answer).code() in FENCED else unknown
        return unknown

    def _raise_if_lost(self) -> None:
        try:
            self._client.begin_transaction()
        except KafkaException as error:
            if error_of(error).code() != KafkaError._STATE:  # noqa: SLF001  # _STATE: one is open, as it should be
                raise

    def _begin(self) -> None:
        if not self._open:
            with self._translated("beginning a transaction"):
                self._client.begin_transaction()
            if not self._sender.targets.by_key:
                self._sender.mark(self._header)
            self._open = True

    @property
    def _header(self) -> tuple[str, bytes | None]:
        return mark(self._partition, self._hanging.group, self._began_at)


def commit_alone(producer: Producer, store: TransactionalOffsetStore, where: Partition, at: CommittedOffset) -> None:
    """Commit an offset in a transaction of its own; raises KafkaException."""
    producer.begin_transaction()
    store.save_in_transaction(producer, where, at.offset, at.metadata)
    producer.commit_transaction(COMMIT_SECONDS)
