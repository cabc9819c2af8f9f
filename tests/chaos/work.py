"""
Runs `app.spark.job.work` in Spark's workers with wrapped clients.

The wrapped clients pass failpoints and label each transaction. `CONTROLS` has clients that are wrong on purpose, in
ways that the checker must find. No configuration of the product can reach this code. It works with older checkouts of the
product, too, whose seams are a little narrower.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa
from confluent_kafka import Producer

from app.executor.clients import LaneWriter
from app.kafka import delivery, settings
from app.kafka.clients import TaskClients
from app.kafka.consumer import TaskConsumer
from app.kafka.plain.sender import PlainSender
from app.kafka.sender import Targets
from app.kafka.writers import TransactionalWriter
from app.model import Assignment, CommittedOffset, Partition, Receipt, TaskConfig
from app.offsets.contract import OffsetStore, TransactionalOffsetStore
from app.records import Chunk, Lines, OutgoingRecord
from app.spark import job
from tests.chaos.arms import arm_of
from tests.chaos.failpoints import Failpoints
from tests.chaos.readers import COUNT, TRANSACTION

if TYPE_CHECKING:
    from app.kafka.hanging import HangingTransactions

EARLIER_OWNER_SECONDS = 0.8
"""Longer than a commit interval, so that an earlier owner commits after the offset was read."""
LONG_AGO = 1
"""A timestamp that brokers take, in milliseconds since the epoch. A worker's clock may be wrong on purpose."""


products_work = job.work
"""The product's own, which `tests.chaos.service` replaces where tasks are forked."""


def work(assignments: Iterable[Assignment], arm: str, points: str) -> Iterator[Receipt]:
    """Do what the product does, down to the arguments of its clients, but with clients of ours."""
    arm_of(arm).in_worker()

    def clients(config: TaskConfig, **given: Any) -> HonestClients:
        return CONTROLS.get(arm, HonestClients)(config, Failpoints(points), **given)

    job.TaskClients = clients  # type: ignore[assignment,attr-defined]  # of this worker
    yield from products_work(assignments)


class FailpointProducer(Producer):
    """A producer with failpoints around its control calls."""

    def __init__(self, points: Failpoints, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._points = points

    def init_transactions(self, *args: Any) -> None:
        with self._points.around("init"):
            super().init_transactions(*args)

    def send_offsets_to_transaction(self, *args: Any) -> None:
        with self._points.around("offsets"):
            super().send_offsets_to_transaction(*args)

    def commit_transaction(self, *args: Any) -> None:
        with self._points.around("commit"):
            super().commit_transaction(*args)


class FailpointConsumer:
    """A consumer with failpoints around each fetch."""

    def __init__(self, consumer: TaskConsumer, points: Failpoints) -> None:
        self._consumer, self._points = consumer, points

    @property
    def client(self) -> Any:
        return self._consumer.client

    @property
    def refused(self) -> bool:
        return self._consumer.refused

    def connect(self, partitions: Iterable[Partition]) -> None:
        self._consumer.connect(partitions)

    def start(self, partition: Partition, offset: int, *epoch: int) -> None:
        self._consumer.start(partition, offset, *epoch)

    def stop(self, partition: Partition) -> None:
        self._consumer.stop(partition)

    def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
        with self._points.around("fetch"):
            return self._consumer.poll(seconds, most)

    def close(self) -> None:
        self._consumer.close()


class LabelledWriter:
    """
    A writer that labels its transactions, so that readers can distinguish them.

    The key of each line and the headers of each dead letter name the transaction; the name begins with the owner. The
    last record of a transaction is an additional dead letter that holds the number of labelled records before it. A line
    without a key has no label: a compacted topic must be able to refuse it.
    """

    def __init__(self, writer: LaneWriter, points: Failpoints, owner: str = "") -> None:
        self._writer, self._points, self._owner = writer, points, owner
        self._name, self._records = self._fresh_name(), 0

    def _fresh_name(self) -> str:
        return self._owner + uuid.uuid4().hex[:12]

    @property
    def suspect(self) -> bool:
        return self._writer.suspect

    @suspect.setter
    def suspect(self, suspect: bool) -> None:
        self._writer.suspect = suspect

    def open(self) -> None:
        self._writer.open()

    def settle(self, committed: CommittedOffset | None) -> None:
        self._writer.settle(committed)

    def end_pending(self, committed: int | None) -> None:
        self._writer.end_pending(committed)

    def send(self, lines: Lines) -> None:
        label = b"|" + self._name.encode()
        names = [None if key is None else key + label for key in lines.keys.to_pylist()]
        keys = pa.array(names, pa.binary())
        self._records += len(lines) - keys.take(pa.array(lines.rows)).null_count
        with self._points.around("send"):
            self._writer.send(replace(lines, keys=keys))

    def send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
        self._records += len(dead_letters)
        self._writer.send_dead_letters([self._labelled(dead_letter) for dead_letter in dead_letters])

    def _labelled(self, dead_letter: OutgoingRecord, **more: bytes) -> OutgoingRecord:
        return dead_letter._replace(headers=[*dead_letter.headers, (TRANSACTION, self._name.encode()), *more.items()])

    def commit(self, offset: int, metadata: str) -> None:
        if self._records:
            last = OutgoingRecord(None, None, (), LONG_AGO)
            self._writer.send_dead_letters([self._labelled(last, **{COUNT: b"%d" % self._records})])
        self._writer.commit(offset, metadata)
        self._name, self._records = self._fresh_name(), 0

    def reset(self, offset: int, metadata: str) -> None:
        self._writer.reset(offset, metadata)

    @property
    def full(self) -> bool:
        return self._writer.full

    @property
    def waiting(self) -> int:
        return self._writer.waiting

    def send_rest(self) -> None:
        self._writer.send_rest()

    def abandon(self) -> None:
        self._writer.abandon()

    def free(self) -> None:
        self._writer.free()

    def discard(self) -> None:
        self._writer.discard()


class HonestClients:
    """
    The product's clients, wrapped but correct.

    Args:
        task_config: of the task.
        points: the failpoints.
        owner: the names of their transactions begin with it.
        given: what else the product gives its clients.
    """

    def __init__(self, task_config: TaskConfig, points: Failpoints, owner: str = "", **given: Any) -> None:
        self._task_config, self._points, self._owner = task_config, points, owner
        self._producer = partial(FailpointProducer, points)
        self._given = given
        self._clients = self._of(task_config)

    def _of(self, task_config: TaskConfig) -> TaskClients:
        return TaskClients(task_config, producer=self._producer, **self._given)

    def __enter__(self) -> Self:
        self._clients.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._clients.__exit__(*error)

    def consumer(self) -> FailpointConsumer:
        return FailpointConsumer(self._clients.consumer(), self._points)

    def offsets(self) -> OffsetStore:
        return self._clients.offsets()

    def writer(self, partition: Partition, offsets: OffsetStore) -> LabelledWriter:
        return LabelledWriter(self.inner_writer(partition, offsets), self._points, self._owner)

    def inner_writer(self, partition: Partition, offsets: OffsetStore) -> LaneWriter:
        """Return the product's writer; control arms make another one."""
        return self._clients.writer(partition, offsets)

    def sending(self, partition: Partition) -> tuple[PlainSender, delivery.Delivery]:
        """Return the sender and the delivery of a transactional writer."""
        return self.plain(partition, settings.transactional_producer(self._task_config, partition), self._producer)

    def hanging(self) -> HangingTransactions:
        """Return what finds transactions that earlier owners have left open."""
        from app.kafka.hanging import HangingTransactions  # an older checkout does not have it

        return HangingTransactions(self._task_config.kafka, self._task_config.group)

    def plain(
        self, partition: Partition, configured: settings.Settings, producer: Callable[..., Producer]
    ) -> tuple[PlainSender, delivery.Delivery]:
        reads_none = getattr(delivery, "FlushedDelivery", delivery.Delivery)  # as an older checkout calls it
        made = reads_none(lambda own: producer(configured | own, logger=settings.SILENT))
        return PlainSender(made.client, Targets.of(self._task_config, partition)), made


class RandomIds(HonestClients):
    """Wrong: every producer has a random transactional.id, so none is ever fenced."""

    def inner_writer(self, partition: Partition, offsets: OffsetStore) -> LaneWriter:
        random_id = replace(self._task_config, group=f"{self._task_config.group}-{uuid.uuid4().hex}")
        return self._of(random_id).writer(partition, offsets)


class OffsetFirst(HonestClients):
    """Wrong: the committed offset is read before the earlier owner is fenced."""

    def offsets(self) -> OffsetStore:
        return StaleOffsets(super().offsets())

    def inner_writer(self, partition: Partition, offsets: OffsetStore) -> LaneWriter:
        cast("StaleOffsets", offsets).read_ahead(partition)
        time.sleep(EARLIER_OWNER_SECONDS)
        return super().inner_writer(partition, cast("StaleOffsets", offsets).store)


class StaleOffsets:
    """Returns offsets that it read before the earlier owner was fenced."""

    transactional = True

    def __init__(self, store: OffsetStore) -> None:
        self.store = store
        self._early: dict[Partition, CommittedOffset] = {}

    def read_ahead(self, partition: Partition) -> None:
        self._early.update(self.store.load([partition], stable=True))

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        return {partition: self._early[partition] for partition in partitions if partition in self._early}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    save: Callable[[Partition, int, str], None]
    reset: Callable[[Partition, int, str], None]
    close: Callable[[], None]


class OffsetsLater(HonestClients):
    """Wrong: transactions carry no offset; the driver commits it after the round (see `service`)."""

    def inner_writer(self, partition: Partition, offsets: OffsetStore) -> LaneWriter:
        return OffsetlessWriter(
            partition, *self.sending(partition), cast("TransactionalOffsetStore", offsets), self.hanging()
        )


class OffsetlessWriter(TransactionalWriter):
    """Commits output and dead letters without the offset."""

    def commit(self, offset: int, metadata: str) -> None:
        self._begin()
        with self._translated("committing"):
            self._deliver_all()
            self._client.commit_transaction(5.0)
        self._open = False


class DeadLettersOutside(HonestClients):
    """Wrong: dead letters are written outside the transaction."""

    def inner_writer(self, partition: Partition, offsets: OffsetStore) -> LaneWriter:
        outside = self.plain(partition, settings.producer(self._task_config), Producer)
        inside = self.sending(partition)
        return LeakingWriter(outside, partition, *inside, cast("TransactionalOffsetStore", offsets), self.hanging())


class LeakingWriter(TransactionalWriter):
    """Writes dead letters with a second producer, which has no transaction."""

    def __init__(self, outside: tuple[PlainSender, delivery.Delivery], *args: Any) -> None:
        super().__init__(*args)
        self._outside, self._outside_delivery = outside

    def send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
        self._outside.offer_dead_letters(dead_letters, 0)
        self._outside_delivery.deliver_all(5.0)


class KeptProducer(HonestClients):
    """Wrong: a producer is kept although its commit may have been sent twice."""

    def writer(self, partition: Partition, offsets: OffsetStore) -> LabelledWriter:
        return TrustingWriter(self.inner_writer(partition, offsets), self._points)


class TrustingWriter(LabelledWriter):
    """Never regards a commit as doubtful."""

    @property
    def suspect(self) -> bool:
        return False

    @suspect.setter
    def suspect(self, suspect: bool) -> None:
        pass


HONEST = "honest"
AT_LEAST_ONCE = "at-least-once"
DRIVER_COMMITS = "driver-commits"
CONTROLS: Mapping[str, type[HonestClients]] = {
    HONEST: HonestClients,
    AT_LEAST_ONCE: HonestClients,
    DRIVER_COMMITS: OffsetsLater,
    "random-ids": RandomIds,
    "take-over-unfenced": RandomIds,
    "offset-first": OffsetFirst,
    "dead-letters-outside": DeadLettersOutside,
    "kept-producer": KeptProducer,
}
