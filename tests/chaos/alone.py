"""
Runs the product's executor and its real clients without driver and Spark: one broker, one process per worker.

The processes are forked from one that has everything loaded, as Spark's daemon forks its workers.
"""

from __future__ import annotations

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
from tests.chaos.lines import bad_line, key
from tests.chaos.load import Batch, fresh_name
from tests.chaos.run import finish
from tests.chaos.work import CONTROLS, HONEST
from tests.independent import line
from tests.support.forks import FORKS

PARTITIONS = 8
BAD_EVERY = 10
TASK_SECONDS = 600.0
SLOW_COMMIT = "a slow commit"


class Worker:
    """A process that calls a function and sends back what it returns."""

    def __init__(self, work: Callable[..., object], *arguments: object) -> None:
        """Start the process."""
        self._result, result = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=_send_result, args=(result, work, arguments), daemon=True)
        self._process.start()
        result.close()

    def result(self) -> Any:
        """Wait for the result; None if the process died first."""
        try:
            return self._result.recv()
        except EOFError:
            return None
        finally:
            self._process.join()


def _send_result(result: Connection, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    with result:
        result.send(work(*arguments))


class Testbed:
    """
    Topics on a broker, numbered lines in them, and a history of both.

    Args:
        broker: where the topics are.
        recorder: writes the history.
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
        """Write more lines, some of them bad, and wait for their acknowledgements; return the partition's new end."""
        first = self.written[partition]
        numbers = range(first, first + count)
        bad = [number for number in numbers if number % BAD_EVERY == 0]
        batch = Batch(self.recorder, 2 * partition, first, count, bad, outcomes=Counter())
        for number in numbers:
            value = bad_line(2 * partition, number) if number in batch.bad else line(number, 2 * partition)
            self._producer.produce(self.source, value, key(2 * partition, number), partition, batch.on_delivery)
        self._producer.flush()
        self.written[partition] += count
        return self.written[partition]

    def offset_range(self, partition: int, start: int, end: int) -> OffsetRange:
        """Return the offset range that a driver would plan."""
        return OffsetRange(Partition(self.source, partition), start or None, start, end)


def run_task(
    task_config: TaskConfig, offset_range: OffsetRange, points: Path, owner: str = "", arm: str = HONEST
) -> Receipt:
    """Run one task on one offset range; the names of its transactions begin with `owner`."""
    assignment = Assignment(task_config, (offset_range,), TASK_SECONDS, deadline=0)
    clients = CONTROLS[arm](task_config, Failpoints(points), owner)
    (receipt,) = task.run(assignment, clients, make_parser(task_config), TASK_SECONDS)
    return receipt


def outcome(receipt: Receipt | None) -> str:
    """Return in a few words how a task ended; a task without a receipt has died."""
    if receipt is None:
        return "died"
    if not receipt.reopened:
        return receipt.outcome.value
    return f"{receipt.outcome.value}, reopened after: {receipt.error or SLOW_COMMIT}"


@contextmanager
def testbed(folder: Path, **setup: object) -> Iterator[Testbed]:
    """Start a broker and a history; at the end record open transactions and read both output topics completely."""
    with Recorder(folder / "history.jsonl.gz") as recorder, Broker() as broker:
        recorder.record("setup", **setup)
        bed = Testbed(broker, recorder)
        yield bed
        finish(broker.bootstrap, bed.roles, recorder)
