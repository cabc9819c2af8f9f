"""
Tasks alone: the product's executor and its real clients, each task in a process of its own, without driver and Spark.

The processes are forked from one that has everything loaded, as Spark's daemon forks its workers. One broker.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from app.embedded.broker import Broker
from app.executor import task
from app.executor.parse import make_parser
from app.kafka.admin import AdminConnection
from app.kafka.topics import KafkaTopics
from app.model import Assignment, Guarantee, OffsetRange, Partition, Plugin, Receipt, TaskConfig
from tests.chaos.failpoints import Failpoints
from tests.chaos.history import Recorder
from tests.chaos.load import Batch, bad_line, fresh_name, key
from tests.chaos.run import finish
from tests.chaos.work import CONTROLS, HONEST
from tests.independent import line

PARTITIONS = 8
BAD_EVERY = 10
TASK_SECONDS = 60.0
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.chaos.forked"])


class Worker:
    """A process that works for us, and what it hands back."""

    def __init__(self, work: Callable[..., object], *arguments: object) -> None:
        """Start it."""
        self._result, result = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=_hand_back, args=(result, work, arguments), daemon=True)
        self._process.start()
        result.close()

    def result(self) -> Any:
        """Wait for what it hands back; None if it died before."""
        try:
            return self._result.recv()
        except EOFError:
            return None
        finally:
            self._process.join()


def _hand_back(result: Connection, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    with result:
        result.send(work(*arguments))


class Stage:
    """
    Topics on a broker, lines in them, and a history of it all.

    Args:
        broker: where.
        recorder: what keeps the history.
    """

    def __init__(self, broker: Broker, recorder: Recorder) -> None:
        """Create the topics."""
        self.bootstrap, self.recorder = broker.bootstrap, recorder
        self.name = fresh_name()
        self.roles = {"sink": f"{self.name}.clean", "dead": f"{self.name}.dead"}
        self.source = f"{self.name}.raw"
        self.written: Counter[int] = Counter()
        for topic in (self.source, *self.roles.values()):
            broker.create_topic(topic, PARTITIONS)
        kafka = {"bootstrap.servers": broker.bootstrap}
        admin = KafkaTopics(AdminConnection(kafka))
        sink, dead = (admin.destination(topic) for topic in self.roles.values())
        self.task_config = TaskConfig(
            self.name, Guarantee.EXACTLY_ONCE, sink, dead, "raw", Plugin("idc-access-log"), kafka, commit_seconds=0.1
        )
        self._producer = Producer(kafka | {"linger.ms": "1", "log_level": "0"})

    def write(self, partition: int, count: int) -> int:
        """Write so many further lines, some of them bad, and see them acknowledged; return the offset behind them."""
        first = self.written[partition]
        numbers = range(first, first + count)
        bad = [number for number in numbers if number % BAD_EVERY == 0]
        batch = Batch(self.recorder, 2 * partition, first, count, bad, fates=Counter())
        for number in numbers:
            value = bad_line(2 * partition, number) if number in batch.bad else line(number, 2 * partition)
            self._producer.produce(self.source, value, key(2 * partition, number), partition, batch.note)
        self._producer.flush()
        self.written[partition] += count
        return self.written[partition]

    def offset_range(self, partition: int, start: int, end: int) -> OffsetRange:
        """Plan what a driver would plan."""
        return OffsetRange(Partition(self.source, partition), start or None, start, end)


def run_task(
    task_config: TaskConfig, offset_range: OffsetRange, points: Path, owner: str = "", arm: str = HONEST
) -> Receipt:
    """Do one task up to its agreed end; its transactions carry its owner's name."""
    assignment = Assignment(task_config, (offset_range,), TASK_SECONDS, deadline=0)
    clients = CONTROLS[arm](task_config, Failpoints(points), owner)
    (receipt,) = task.run(assignment, clients, make_parser(task_config), TASK_SECONDS)
    return receipt


def told(receipt: Receipt | None) -> str:
    """Say in a few words how a task ended."""
    if receipt is None:
        return "died"
    return receipt.outcome.value + (f", opened again after: {receipt.error}" if receipt.reopened else "")


@contextmanager
def stage(folder: Path, **setup: object) -> Iterator[Stage]:
    """Start a broker and a history; at the end look for what was left open and read everything."""
    with Recorder(folder / "history.jsonl.gz") as recorder, Broker() as broker:
        recorder.record("setup", **setup)
        made = Stage(broker, recorder)
        yield made
        finish(broker.bootstrap, made.roles, recorder)
