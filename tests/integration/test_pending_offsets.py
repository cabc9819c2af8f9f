"""The partition of the group's offsets loses its only replica during a transaction: an offset stays pending."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import Broker
from app.errors import Unreachable
from app.executor import task
from app.executor.parse import make_parser
from app.kafka.clients import TaskClients
from app.kafka.offsets import KafkaGroupOffsets
from app.kafka.writers import TransactionalWriter
from app.model import Assignment, Destination, Guarantee, OffsetRange, Partition, Plugin, TaskConfig
from app.offsets.contract import StoreContext
from tests.chaos.cluster import stopped
from tests.conftest import QUICK_JAVA, wait_for_coordinators
from tests.independent import Written, cleansed, committed, connect_again, line, produce, read, values
from tests.integration.three_nodes.placed import COMPACTED, FRAGILE_NODE
from tests.integration.writers import deliver, make_dead_letters, make_lines
from tests.support.waiting import PATIENCE, until, without

RAW, CLEAN, DEAD = "pending.raw", "pending.clean", "pending.dead"
COMMITTED, ABORTED, HANGS, LETTERS, WENT_ON = PARTITIONS = [Partition(RAW, number) for number in range(5)]
"""
The state of each partition's transaction. The third also hangs in the sink. The fourth has only dead letters and was
committed. So was the last, whose owner has begun another one.
"""
BEFORE, AFTER, END = 5, 10, 12
"""The offsets before and after that transaction, and the end of each partition."""


@pytest.fixture(scope="module")
def three() -> Iterator[Broker]:
    """Return three nodes: the last hosts the group's offsets and a partition of the sink, the others host the rest."""
    placed = {"__consumer_offsets": [FRAGILE_NODE] * 5, "__transaction_state": [1] * 5}
    placed |= {RAW: [1] * 5, CLEAN: [1, 1, FRAGILE_NODE, 1, 1], DEAD: [1]}
    with Broker(nodes=3, java=QUICK_JAVA) as broker:
        broker.create_topics(*(topic(name, *nodes) for name, nodes in placed.items()))
        wait_for_coordinators(broker)
        yield broker


def topic(name: str, *nodes: int) -> NewTopic:
    """Return a topic with a partition on each of these nodes. Kafka's own topics are compacted."""
    config = COMPACTED if name.startswith("__") else {}
    return NewTopic(name, len(nodes), replica_assignment=[[node] for node in nodes], config=config)


def make_config(broker: Broker) -> TaskConfig:
    """Return the configuration that a driver would pass to a task."""
    sink, dead = Destination(CLEAN, 5, 1_000_000), Destination(DEAD, 1, 1_000_000)
    kafka = {"bootstrap.servers": broker.bootstrap}
    parser, long = Plugin("idc-access-log"), 600.0  # Kafka must end no transaction by itself
    return TaskConfig("pending", Guarantee.EXACTLY_ONCE, sink, dead, "raw", parser, kafka, transaction_seconds=long)


class Owner:
    """Owns a partition until the broker dies."""

    def __init__(self, config: TaskConfig, partition: Partition) -> None:
        clients = TaskClients(config)
        self.partition = partition
        self.offsets = clients.offsets()
        writer = clients.writer(partition, self.offsets)
        assert isinstance(writer, TransactionalWriter)
        self.writer, self.client = writer, writer._client

    def begin(self) -> None:
        """Commit the offset before the transaction. Leave the transaction open, with everything acknowledged."""
        self.writer.open()
        self.writer.settle(None)
        self.send(0, BEFORE)
        self.writer.commit(BEFORE, "")
        self.send(BEFORE, AFTER)
        deliver(self.writer)
        assert isinstance(self.offsets, KafkaGroupOffsets)
        self.offsets.save_in_transaction(self.client, self.partition, AFTER, "")

    def send(self, first: int, last: int) -> None:
        """Send the lines of an offset range, or as many dead letters."""
        if self.partition == LETTERS:
            self.writer.send_dead_letters(make_dead_letters(self.partition, first - BEFORE, last - BEFORE))
        else:
            self.writer.send(make_lines(*map(cleansed, range(first, last))))

    def end(self) -> None:
        """End the transaction while the broker of the offsets cannot write its marker, unnoticed."""
        (self.client.abort_transaction if self.partition == ABORTED else self.client.commit_transaction)(PATIENCE)
        self.writer._open, self.writer._began_at = False, AFTER

    def go_on(self) -> None:
        """Begin the next transaction, which will be aborted because its offset cannot be stored."""
        self.send(AFTER, END)
        deliver(self.writer)


@pytest.fixture(scope="module")
def pending(three: Broker) -> TaskConfig:
    """Kill the broker of the offsets during the transactions. Restart it once Kafka has ended them."""
    for partition in (COMMITTED, ABORTED, HANGS, WENT_ON):
        produce(three.bootstrap, RAW, [Written(line(n), partition=partition.number) for n in range(END)])
    produce(three.bootstrap, RAW, [Written(b"%d" % (n - BEFORE), partition=LETTERS.number) for n in range(END)])
    config = make_config(three)
    (server,) = psutil.Process(three.pids[-1]).children()
    owners = [Owner(config, partition) for partition in PARTITIONS]
    for owner in owners:
        owner.begin()
    with stopped(server):
        for owner in owners:
            owner.end()
        three.kill(FRAGILE_NODE)
    until(lambda: leader(three) != FRAGILE_NODE, "the controller to notice")
    owners[WENT_ON.number].go_on()
    for owner in owners:
        owner.writer.discard()
    three.start(FRAGILE_NODE)
    connect_again()
    return config


def leader(broker: Broker) -> int:
    """Return the leader of the sink's partition on the fragile node."""
    return int(broker.admin().list_topics(CLEAN, timeout=PATIENCE).topics[CLEAN].partitions[HANGS.number].leader)


def test_a_pending_offset_is_ended_as_its_records_were(three: Broker, pending: TaskConfig) -> None:
    """A pending offset is unreadable until the next task ends its transaction again. Nothing is lost or duplicated."""
    store = KafkaGroupOffsets(StoreContext(pending.group, pending.kafka))
    known = without(Unreachable, lambda: store.load(PARTITIONS, stable=False), "the group's coordinator")
    for partition in PARTITIONS:
        with pytest.raises(Unreachable, match="Timed out"):
            store.load([partition], stable=True)
    assert {BEFORE} == {at.offset for at in known.values()}

    ranges = tuple(OffsetRange(each, BEFORE, BEFORE, END) for each in PARTITIONS)
    assignment = Assignment(pending, ranges, PATIENCE, deadline=0)
    receipts = task.run(assignment, TaskClients(pending), make_parser(pending), PATIENCE)

    assert {each: END - (BEFORE if each in (ABORTED, HANGS) else AFTER) for each in PARTITIONS} == {
        receipt.partition: receipt.records for receipt in receipts
    }
    for partition in (COMMITTED, ABORTED, HANGS, WENT_ON):
        found = [each for each in read(three.bootstrap, CLEAN) if each.partition == partition.number]
        assert [cleansed(n) for n in range(END)] == values(found)
    assert [b"%d" % (n - BEFORE) for n in range(END)] == values(read(three.bootstrap, DEAD))
    assert dict.fromkeys(PARTITIONS, END) == committed(three.bootstrap, pending.group, RAW)
