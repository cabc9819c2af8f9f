"""A sink partition loses its only replica, and with it the end of a transaction, which Kafka 4 never writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import Broker
from app.errors import Transient
from app.kafka import writers
from app.kafka.backend import PLAIN, Backend, best_backend
from app.kafka.clients import TaskClients
from app.kafka.writers import TransactionalWriter
from app.model import Destination, Guarantee, Partition, Partitioner, Plugin, TaskConfig
from app.offsets.contract import OffsetStore
from app.records import Lines, OutgoingRecord
from tests.chaos.cluster import stopped
from tests.independent import by_partition, cleansed, connect_again, read, values
from tests.integration.three_nodes.placed import FRAGILE_NODE
from tests.integration.writers import deliver, make_dead_letters
from tests.support.waiting import PATIENCE, until, without

BACKENDS = {"plain": PLAIN, "bulk": best_backend({})}
BY_KEY = "by-key"
ENDS = ("aborted", "committed", BY_KEY)
FRAGILE, ELSEWHERE = b"hangs", b"stays"
"""Keys of the sink's partitions 0 and 1, where there are two."""


class Lost:
    """A sink and dead letters on the fragile node, and writers for them."""

    def __init__(self, broker: Broker, name: str, backend: Backend) -> None:
        self.bootstrap = broker.bootstrap
        self.source = Partition(f"{name}.raw", 0)
        self.sink, self.dead = f"{name}.clean", f"{name}.dead"
        self.by_key = name.startswith(BY_KEY)
        partitioner = Partitioner.KEY if self.by_key else Partitioner.SOURCE
        sinks = [[FRAGILE_NODE], [1]] if self.by_key else [[FRAGILE_NODE]]
        placed = {self.source.topic: [[1]], self.sink: sinks, self.dead: [[FRAGILE_NODE]]}
        broker.create_topics(*(NewTopic(topic, len(on), replica_assignment=on) for topic, on in placed.items()))
        sink, dead = Destination(self.sink, len(sinks), 1_000_000), Destination(self.dead, 1, 1_000_000)
        kafka = {"bootstrap.servers": broker.bootstrap}
        config = TaskConfig(
            name,
            Guarantee.EXACTLY_ONCE,
            sink,
            dead,
            "raw",
            Plugin("idc-access-log"),
            kafka,
            sink_partitioner=partitioner,
        )
        self.clients = TaskClients(config, backend)
        self.offsets: OffsetStore = self.clients.offsets()

    def writer(self) -> TransactionalWriter:
        """Return a writer that has fenced the others and ended their transactions."""
        writer = self.clients.writer(self.source, self.offsets)
        assert isinstance(writer, TransactionalWriter)
        try:
            writer.open()
            committed = self.offsets.load([self.source], stable=True).get(self.source)
            writer.settle(committed)
            writer.send_dead_letters([])  # raises while it is unknown whether a transaction is open in the dead letters
        except Transient:
            writer.discard()
            raise
        return writer

    def begin(self) -> TransactionalWriter:
        """Commit five lines. Leave more in an open transaction, acknowledged."""
        writer = self.next_writer()
        writer.send(lines(0, 5))
        writer.commit(5, "")
        writer.send(lines(5, 10))
        if not self.by_key:  # a dead letter would show by itself what hangs
            writer.send_dead_letters(make_dead_letters(self.source, 0, 2))
        deliver(writer)
        return writer

    def next_writer(self) -> TransactionalWriter:
        """Return a writer as soon as the partitions have a leader that responds."""
        return without(Transient, self.writer, "the next writer")

    def go_on(self, more: Lines, dead_letters: list[OutgoingRecord]) -> None:
        """Commit up to the twelfth offset with the next writer, and wait until as many lines are readable."""
        writer = self.next_writer()
        writer.send(more)
        writer.send_dead_letters(dead_letters)
        writer.commit(12, "")
        writer.discard()
        until(lambda: len(read(self.bootstrap, self.sink)) >= 12, "the lines")


def lines(first: int, last: int) -> Lines:
    """Return cleansed lines. If keys choose the partition, the first one goes elsewhere than all others."""
    count = last - first
    made = pa.array([cleansed(n) for n in range(first, last)], pa.binary())
    keys = pa.array([ELSEWHERE, *[FRAGILE] * (count - 1)], pa.binary())
    return Lines(made, np.arange(count, dtype=np.int32), keys, np.zeros(count, np.int64))


class Outages(NamedTuple):
    """
    For each backend, three transactions that were open when their sinks lost the leader.

    A test takes its own one out, so that its clients end with the test.
    """

    aborted: dict[str, Lost]
    committed: dict[str, Lost]
    aborted_by_key: dict[str, Lost]


@pytest.fixture(scope="module", autouse=True)
def _patience() -> Iterator[None]:
    """Give commits more time than a task has: a busy machine may take it, and nothing here is about that."""
    with pytest.MonkeyPatch.context() as patient:
        patient.setattr(writers, "COMMIT_SECONDS", PATIENCE)
        yield


@pytest.fixture(scope="module")
def outages(three: Broker) -> Outages:
    """Kill the fragile node during six transactions, and restart it when Kafka has ended all of them."""
    found = Outages(*({name: Lost(three, f"{end}-{name}", each) for name, each in BACKENDS.items()} for end in ENDS))
    (server,) = psutil.Process(three.pids[-1]).children()
    begun = {lost: lost.begin() for kind in found for lost in kind.values()}
    with stopped(server):  # it writes no more markers, unnoticed
        for lost in found.committed.values():
            begun[lost].commit(10, "")
        three.kill(FRAGILE_NODE)
    until(lambda: not leads(three, next(iter(found.aborted.values()))), "the controller to notice")
    for writer in begun.values():
        writer.discard()
    lost = found.aborted["bulk"]
    until(lambda: f"{lost.sink}-0" in refusal(lost), "a refusal that names the partition")
    three.start(FRAGILE_NODE)
    connect_again()
    return found


def refusal(lost: Lost) -> str:
    """Return why a writer cannot continue; empty if it can."""
    try:
        lost.writer().discard()
    except Transient as error:
        return str(error)
    return ""


def leads(broker: Broker, lost: Lost) -> bool:
    """Whether the fragile node leads a sink."""
    return broker.admin().list_topics(lost.sink, timeout=60).topics[lost.sink].partitions[0].leader == FRAGILE_NODE


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_aborted_stays_aborted(outages: Outages, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of a transaction whose end was never written do not appear with those of the next one."""
    lost = outages.aborted.pop(backend)
    with monkeypatch.context() as slow:
        slow.setattr(writers, "SENT_AGAIN_SECONDS", 0.0)
        until(lambda: "sent twice" in refusal(lost), "the abort, after which another producer goes on")
    lost.go_on(lines(5, 12), make_dead_letters(lost.source, 0, 3))

    assert [cleansed(n) for n in range(12)] == values(read(lost.bootstrap, lost.sink))
    assert [b"0", b"1", b"2"] == values(read(lost.bootstrap, lost.dead))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_aborted_by_key_stays_aborted(outages: Outages, backend: str) -> None:
    """So do lines in a partition that the transaction's first line did not go to."""
    lost = outages.aborted_by_key.pop(backend)
    lost.go_on(lines(5, 12), make_dead_letters(lost.source, 0, 3))

    found = by_partition(read(lost.bootstrap, lost.sink))
    assert [cleansed(0), cleansed(5)] == found[1]
    assert [cleansed(n) for n in range(12) if n not in (0, 5)] == found[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_committed_stays_committed(outages: Outages, backend: str) -> None:
    """Lines of a transaction that was committed when its partition was lost become visible with the next ones."""
    lost = outages.committed.pop(backend)
    lost.go_on(lines(10, 12), make_dead_letters(lost.source, 2, 3))

    assert [cleansed(n) for n in range(12)] == values(read(lost.bootstrap, lost.sink))
    assert [b"0", b"1", b"2"] == values(read(lost.bootstrap, lost.dead))
