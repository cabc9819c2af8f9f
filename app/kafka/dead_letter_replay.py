"""Writes the results of replayed dead letters, with one transactional producer for each dead-letter partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from confluent_kafka import Producer

from app.errors import Fenced, NotUsable, PartitionError, Refused, Unreachable
from app.kafka import settings
from app.kafka.admin import AdminConnection
from app.kafka.companions import KafkaCompanions
from app.kafka.delivery import Delivery
from app.kafka.hanging import HangingTransactions
from app.kafka.plain.sender import PlainSender
from app.kafka.sender import Targets
from app.kafka.writers import TransactionalWriter
from app.model import CommittedOffset, Partition, Plugin, TaskConfig
from app.offsets.contract import StoreContext, TransactionalOffsetStore, is_transactional
from app.offsets.registry import open_store
from app.records import OutgoingRecord
from app.runtime import REAL

AT_ONCE = 16


class ReplayWriter:
    """Writes for one dead-letter partition. A later replay fences it through the transactional id."""

    def __init__(
        self, partition: Partition, offsets: TransactionalOffsetStore, make: Callable[[], TransactionalWriter]
    ) -> None:
        self._partition = partition
        self._offsets = offsets
        self._make = make
        self._writer = make()
        self._committed: CommittedOffset | None = None

    def open(self) -> CommittedOffset | None:
        """Fence earlier replays, end their open transactions, and return their position."""
        with self._explained():
            self._committed = self._open()
        return self._committed

    def _open(self) -> CommittedOffset | None:
        self._writer.open()
        committed = self._offsets.load([self._partition], stable=True).get(self._partition)
        self._writer.settle(committed)
        return committed

    def commit(self, records: Sequence[tuple[Partition, OutgoingRecord]], position: int, metadata: str) -> None:
        with self._explained():
            try:
                if records:
                    self._writer.send_each(records)
                self._writer.commit(position, metadata)
            except Refused:
                self._replace()
                raise
            self._committed = CommittedOffset(position, metadata)
            if self._writer.suspect:
                self._replace()

    def _replace(self) -> None:
        """
        Replace the producer, whose last requests may arrive late.

        Raises Fenced if another replay has moved the position since. The new producer has fenced that one.
        """
        self._writer.discard()
        self._writer = self._make()
        if (found := self._open()) != self._committed:
            offset = None if found is None else found.offset
            raise Fenced(self._partition, "another replay has moved this replay's position", offset)

    def close(self) -> None:
        self._writer.discard()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except Fenced as error:
            raise NotUsable(f"another replay of {self._partition.topic} has taken over") from error
        except Refused:
            raise
        except PartitionError as error:
            raise Unreachable(str(error), "run the replay again; it resumes where this one stopped") from error


class KafkaReplays:
    """Opens the writers of a replay, and reads the positions of earlier ones; the group of `config` is the replays'."""

    def __init__(self, config: TaskConfig) -> None:
        self._config = config
        store = open_store(Plugin("kafka"), StoreContext(config.group, config.output_kafka))
        assert is_transactional(store)  # the store in Kafka is
        self._offsets: TransactionalOffsetStore = store
        self._hanging = HangingTransactions(config.output_kafka, config.group)
        self._companions = KafkaCompanions(AdminConnection(config.output_kafka))

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, CommittedOffset]:
        return self._offsets.load(partitions, stable=False)

    @contextmanager
    def open(
        self, partitions: Collection[Partition], others: Collection[Partition]
    ) -> Iterator[list[tuple[Partition, ReplayWriter, CommittedOffset | None]]]:
        """
        Yield a writer for each dead-letter partition, with the position of earlier replays; abort what is left open.

        All of them fence before any of them writes.
        """
        writers = [ReplayWriter(each, self._offsets, partial(self._writer, each, others)) for each in partitions]
        with REAL.threads(AT_ONCE, "winnow-replay") as threads:
            positions = list(threads.map(ReplayWriter.open, writers))
        try:
            yield list(zip(partitions, writers, positions, strict=True))
        finally:
            for writer in writers:
                writer.close()

    def _writer(self, partition: Partition, others: Collection[Partition]) -> TransactionalWriter:
        config = self._config
        # As with keys, the partitions of a transaction are unknown beforehand.
        targets = Targets(partition.number, config.sink, config.dead_letters, by_key=True, others=[*others])
        configured = settings.transactional_producer(config, partition)
        delivery = Delivery(lambda own: Producer(configured | own, logger=settings.SILENT))
        sender = PlainSender(delivery.client, targets)
        return TransactionalWriter(partition, sender, delivery, self._offsets, self._hanging)

    def make_room(self, topic: str, partitions: int, settings: Mapping[str, str]) -> list[Partition]:
        return [Partition(topic, number) for number in range(self._companions.create(topic, partitions, settings))]

    def close(self) -> None:
        self._offsets.close()
