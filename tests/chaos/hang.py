"""
Kills brokers for good before `send_offsets_to_transaction`, and measures the call: `python -m tests.chaos hang`.

The call has a timeout of 5 s, but librdkafka may ignore it: the reason why a task goes on without a call that is overdue.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
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
from app.kafka.offsets import KafkaGroupOffsets
from app.kafka.topics import KafkaTopics
from app.model import Guarantee, Partition, Plugin, TaskConfig, transactional_id
from app.offsets.contract import StoreContext
from app.records import Lines
from tests.chaos.alone import Worker
from tests.chaos.brokers import ProxiedBroker
from tests.chaos.cluster import until
from tests.chaos.proxy import Proxy
from tests.independent import cleansed
from tests.support.forks import FORKS

GROUP, SOURCE, SINK, DEAD = "hang", "raw", "clean", "dead"
PARTITIONS = 24
PATIENCE = 90.0
CALL_SECONDS = 10.0


class Case(NamedTuple):
    """What to kill, and how many writers of the process need it."""

    brokers: int
    killed: str
    writers: int


ONLY_BROKER, GROUPS, TRANSACTIONS = "the only broker", "the group's coordinator", "the transactions' coordinator"
CASES = (Case(1, ONLY_BROKER, 1), Case(1, ONLY_BROKER, 4), Case(3, GROUPS, 4), Case(3, TRANSACTIONS, 4))


def measure(case: Case) -> list[float]:
    """Let writers commit after the node that they need was killed; return each call's seconds."""
    broker = ProxiedBroker(case.brokers)
    with Proxy(broker.routes), broker:
        for topic in (SOURCE, SINK, DEAD):
            broker.create_topic(topic, PARTITIONS, replication=case.brokers)
        partitions, node = _choose(broker, case)
        ours, theirs = FORKS.Pipe()
        worker = Worker(commit, broker.bootstrap, partitions, theirs)
        theirs.close()
        ours.recv()
        broker.kill(node)
        ours.send("killed")
        return sorted(worker.result())


def _choose(broker: ProxiedBroker, case: Case) -> tuple[list[Partition], int]:
    """Return partitions whose writers need what the case kills, and the node to kill."""
    everything = [Partition(SOURCE, number) for number in range(PARTITIONS)]
    kafka = {"bootstrap.servers": broker.bootstrap}
    fence = KafkaFence(kafka, GROUP, 60, DEAD)
    # This call and the next one make Kafka create its internal topics.
    KafkaGroupOffsets(StoreContext(GROUP, kafka)).load(everything[:1], stable=True)
    assert until(lambda: fence.fence(everything[:1]) and broker.in_sync, PATIENCE)
    coordinates = {
        each: broker.coordinator("__transaction_state", transactional_id(GROUP, each)) for each in everything
    }
    groups = broker.coordinator("__consumer_offsets", GROUP)
    if case.killed == ONLY_BROKER:
        return everything[: case.writers], groups
    others = [each for each in everything if coordinates[each] != groups]
    if case.killed == GROUPS:
        return others[: case.writers], groups
    node = coordinates[others[0]]
    return [each for each in others if coordinates[each] == node][: case.writers], node


def commit(bootstrap: str, partitions: list[Partition], parent: Connection) -> list[float]:
    """Open writers and send, wait until the parent has killed a node, commit in parallel; return each call's seconds."""
    kafka = {"bootstrap.servers": bootstrap}
    admin = KafkaTopics(AdminConnection(kafka))
    sink, dead = admin.destination(SINK), admin.destination(DEAD)
    task_config = TaskConfig(GROUP, Guarantee.EXACTLY_ONCE, sink, dead, "raw", Plugin("idc-access-log"), kafka)
    made: list[TimedProducer] = []
    clients = TaskClients(task_config, producer=partial(TimedProducer, made))
    offsets = clients.offsets()
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
        wait([threads.submit(_commit, writer) for writer in writers], PATIENCE)
    return [producer.seconds for producer in made]


def _line() -> Lines:
    values = pa.array([cleansed(0)], pa.binary())
    return Lines(values, np.zeros(1, np.int32), values, np.zeros(1, np.int64))


def _commit(writer: LaneWriter) -> None:
    try:
        writer.commit(2, "")
    except PartitionError:
        return


class TimedProducer(Producer):
    """Measures its last `send_offsets_to_transaction`."""

    def __init__(self, made: list[TimedProducer], *args: Any, **kwargs: Any) -> None:
        """Add itself to `made`."""
        super().__init__(*args, **kwargs)
        made.append(self)
        self.seconds = 0.0

    def send_offsets_to_transaction(self, *args: Any) -> None:
        """Call it and keep its duration, also if it fails."""
        began = time.monotonic()
        try:
            super().send_offsets_to_transaction(*args)
        finally:
            self.seconds = time.monotonic() - began
