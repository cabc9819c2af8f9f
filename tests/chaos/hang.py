"""
Hang: `python -m tests.chaos hang`. Brokers go away for good while transactions are about to take an offset: who comes back?

`send_offsets_to_transaction` is given 5 s, and so promises to return by then. Writers are asked in a worker process that
leaves them alone, and in one that looks after them as a task does: its watchdog ends it if a call does not keep its word.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer

from app.errors import PartitionError
from app.executor.clients import LaneWriter
from app.kafka.admin import AdminConnection
from app.kafka.clients import TaskClients
from app.kafka.fence import KafkaFence
from app.kafka.topics import KafkaTopics
from app.model import Guarantee, Partition, Plugin, TaskConfig, transactional_id
from app.offsets.contract import StoreContext
from app.offsets.kafka import KafkaGroupOffsets
from app.records import Lines
from app.watchdog import Watchdog
from tests.chaos.alone import FORKS, Worker
from tests.chaos.cluster import ProxiedBroker, until
from tests.independent import cleansed

GROUP, SOURCE, SINK, DEAD = "hang", "raw", "clean", "dead"
PARTITIONS = 24
PATIENCE = 90.0
CALL_SECONDS = 10.0
LOOK_SECONDS = 0.05


class Case(NamedTuple):
    """What goes away, and how many writers of a process need it."""

    brokers: int
    gone: str
    writers: int


class Told(NamedTuple):
    """
    What became of a process whose writers committed.

    Args:
        seconds: until it came back, or ended.
        calls: how long each `send_offsets_to_transaction` took; None if the process was ended by its watchdog.
    """

    seconds: float
    calls: list[float] | None


ONLY_BROKER, GROUPS, TRANSACTIONS = "the only broker", "the group's coordinator", "the transactions' coordinator"
CASES = (Case(1, ONLY_BROKER, 1), Case(1, ONLY_BROKER, 4), Case(3, GROUPS, 4), Case(3, TRANSACTIONS, 4))


def ask(case: Case, *, watched: bool) -> Told:
    """Let writers commit when what they need has gone away."""
    with ProxiedBroker(case.brokers) as broker:
        for topic in (SOURCE, SINK, DEAD):
            broker.create_topic(topic, PARTITIONS, replication=case.brokers)
        partitions, node = _choose(broker, case)
        ours, theirs = FORKS.Pipe()
        worker = Worker(commit, broker.bootstrap, partitions, watched, theirs)
        theirs.close()
        ours.recv()
        broker.kill(node)
        ours.send("gone")
        began = time.monotonic()
        calls = worker.result()
        return Told(time.monotonic() - began, calls)


def _choose(broker: ProxiedBroker, case: Case) -> tuple[list[Partition], int]:
    """Choose a node to kill, and partitions whose writers need it for just that."""
    everything = [Partition(SOURCE, number) for number in range(PARTITIONS)]
    kafka = {"bootstrap.servers": broker.bootstrap}
    fence = KafkaFence(kafka, GROUP, 60)
    KafkaGroupOffsets(StoreContext(GROUP, kafka)).load(
        everything[:1], stable=True
    )  # this and the next call make Kafka create its own topics
    assert until(lambda: fence.fence(everything[:1]) and broker.whole, PATIENCE)
    coordinates = {
        each: broker.coordinator("__transaction_state", transactional_id(GROUP, each)) for each in everything
    }
    groups = broker.coordinator("__consumer_offsets", GROUP)
    if case.gone == ONLY_BROKER:
        return everything[: case.writers], groups
    others = [each for each in everything if coordinates[each] != groups]
    if case.gone == GROUPS:
        return others[: case.writers], groups
    node = coordinates[others[0]]
    return [each for each in others if coordinates[each] == node][: case.writers], node


def commit(bootstrap: str, partitions: list[Partition], watched: bool, parent: Connection) -> list[float]:
    """Open writers, send, say so; when the parent says that something is gone, commit all side by side."""
    kafka = {"bootstrap.servers": bootstrap}
    admin = KafkaTopics(AdminConnection(kafka))
    sink, dead = admin.destination(SINK), admin.destination(DEAD)
    task_config = TaskConfig(GROUP, Guarantee.EXACTLY_ONCE, sink, dead, "raw", Plugin("idc-access-log"), kafka)
    made: list[TimedProducer] = []
    clients = TaskClients(task_config, producer=partial(TimedProducer, made))
    offsets = clients.offsets(clients.consumer())
    writers = [clients.writer(partition, offsets) for partition in partitions]
    for writer in writers:
        writer.open()
        writer.send(_line())
        writer.commit(1, "")
        writer.send(_line())
    for producer in made:
        producer.flush(CALL_SECONDS)
    parent.send("ready")
    parent.recv()
    with ThreadPoolExecutor(len(writers)) as threads:
        commits = [threads.submit(_commit, writer) for writer in writers]
        _look_after(commits) if watched else wait(commits, PATIENCE)
    return [producer.seconds for producer in made]


def _line() -> Lines:
    values = pa.array([cleansed(0)], pa.binary())
    return Lines(values, np.zeros(1, np.int32), values, np.zeros(1, np.int64))


def _commit(writer: LaneWriter) -> None:
    try:
        writer.commit(2, "")
    except PartitionError:
        return


def _look_after(commits: list[Future[None]]) -> None:
    """Wait as `app.executor.task` does."""
    with Watchdog() as watchdog:
        while wait(commits, LOOK_SECONDS).not_done:
            watchdog.look()


class TimedProducer(Producer):
    """Notes how long its last `send_offsets_to_transaction` took."""

    def __init__(self, made: list[TimedProducer], *args: Any, **kwargs: Any) -> None:
        """Join the others that were made."""
        super().__init__(*args, **kwargs)
        made.append(self)
        self.seconds = 0.0

    def send_offsets_to_transaction(self, *args: Any) -> None:
        """Do it."""
        began = time.monotonic()
        try:
            super().send_offsets_to_transaction(*args)
        finally:
            self.seconds = time.monotonic() - began


def rows() -> Iterator[tuple[Case, Told, Told]]:
    """Yield what became of each case: left alone, and looked after."""
    for case in CASES:
        yield case, ask(case, watched=False), ask(case, watched=True)
