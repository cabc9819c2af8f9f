"""One task on a real Kafka, without Spark and without a driver."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from app.embedded.broker import Broker
from app.errors import Unreachable
from app.executor import task
from app.executor.parse import make_parser
from app.kafka.admin import AdminConnection
from app.kafka.backend import PLAIN, Backend, best_backend
from app.kafka.clients import TaskClients
from app.kafka.fence import KafkaFence
from app.kafka.topics import KafkaTopics
from app.model import Assignment, Guarantee, OffsetRange, Partition, Plugin, Receipt, TaskConfig
from parsers.contract import Parser
from tests import independent
from tests.conftest import Topics
from tests.independent import Place, Record, Written, line, produce
from tests.servers.kafka_tool import kafka_tool
from tests.support.waiting import PATIENCE, until, without

BOTH_GUARANTEES = pytest.mark.parametrize("guarantee", list(Guarantee))
"""For behaviour that must not depend on the delivery guarantee."""
BOTH_BACKENDS = pytest.mark.parametrize("backend", [PLAIN, best_backend({})], ids=["plain", "bulk"])
"""For behaviour that must not depend on the backend."""
PLACEHOLDER = "{topic}.offsets"
LARGE = {"max.message.bytes": str(4 << 20)}
PRINTABLE = bytes(0x30 + byte % (0x7B - 0x30) for byte in range(256))


def noise(size: int, seed: int = 1) -> bytes:
    """Make printable bytes that barely compress."""
    return random.Random(seed).randbytes(size).translate(PRINTABLE)


@dataclass
class Pipeline:
    """The topics and the group of one test, with methods that run a task on them."""

    bootstrap: str
    sources: Mapping[str, int]
    sink: str
    dead: str
    group: str
    guarantee: Guarantee
    changes: dict[str, object] = field(default_factory=dict)
    backend: Backend | None = None
    parser: Parser | None = None
    producer: Callable[..., Producer] = Producer
    centre: str = ""
    """The cluster of the sink, the dead letters and the offsets, if it is not the source's."""

    @property
    def output(self) -> str:
        """The cluster with the outputs."""
        return self.centre or self.bootstrap

    @property
    def source(self) -> str:
        """The first source topic."""
        return next(iter(self.sources))

    @property
    def task_config(self) -> TaskConfig:
        """The configuration that a driver would pass to all tasks."""
        kafka = {"bootstrap.servers": self.bootstrap}
        topics = KafkaTopics(AdminConnection({"bootstrap.servers": self.output}))
        sink, dead = (
            without(Unreachable, partial(topics.destination, each), "Kafka's answer") for each in (self.sink, self.dead)
        )
        task_config = TaskConfig(self.group, self.guarantee, sink, dead, "raw", Plugin("idc-access-log"), kafka)
        if self.centre:
            sink_kafka = {"bootstrap.servers": self.centre}
            task_config = replace(task_config, sink_kafka=sink_kafka, placeholder=PLACEHOLDER)
        return replace(task_config, **self.changes)  # type: ignore[arg-type]  # fields of many types

    def fill(self, records: int) -> None:
        """Write this many lines to each partition of the first source topic."""
        partitions = range(self.sources[self.source])
        written = (Written(line(n, each), partition=each) for n in range(records) for each in partitions)
        produce(self.bootstrap, self.source, written)

    def keep_plan(self) -> None:
        """Keep the current plan for later tasks, even if the topics change."""
        now = self.task_config
        self.changes |= {"sink": now.sink, "dead_letters": now.dead_letters}

    def ranges(self, end: int | None = None) -> tuple[OffsetRange, ...]:
        """Plan as a driver would: from the committed offsets to the ends, or to the given end."""
        known = self.committed()
        ranges = []
        for topic in self.sources:
            begins = independent.beginnings(self.bootstrap, topic)
            for place, last in independent.ends(self.bootstrap, topic).items():
                start = known.get(place, begins[place])
                ranges.append(OffsetRange(Partition(*place), known.get(place), start, last if end is None else end))
        return tuple(ranges)

    def run(self, *ranges: OffsetRange, seconds: float = PATIENCE) -> dict[Partition, Receipt]:
        """Run one task, by default from the committed offsets to the ends of all partitions."""
        task_config = self.task_config
        assignment = Assignment(task_config, ranges or self.ranges(), seconds, deadline=time.time() + seconds)
        parser = self.parser or make_parser(task_config)
        receipts = task.run(assignment, self._clients(assignment), parser, seconds)
        return {receipt.partition: receipt for receipt in receipts}

    def _clients(self, assignment: Assignment) -> TaskClients:
        return TaskClients(assignment.config, self.backend, self.producer, assignment.ranges)

    def running(self, *ranges: OffsetRange) -> RunningTask:
        """Run an endless task in a thread. Return a context manager."""
        return RunningTask(self, ranges)

    def cleansed(self) -> list[Record]:
        """Read the sink."""
        return independent.read(self.output, self.sink)

    def settle(self) -> None:
        """Wait until the last transaction has ended everywhere, so that killing a broker cannot lose its marker."""
        self.cleansed()
        self.committed()

    def dead_letters(self) -> list[Record]:
        """Read the dead letters."""
        return independent.read(self.output, self.dead)

    def committed(self) -> dict[Place, int]:
        """Return the group's offset of each source partition that has one."""
        names = {self._known_as(topic): topic for topic in self.sources}
        found = independent.committed(self.output, self.group, *names)
        return {(names[topic], number): offset for (topic, number), offset in found.items()}

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Set the group's offsets, as an operator would."""
        named = {(self._known_as(topic), number): offset for (topic, number), offset in offsets.items()}
        independent.commit(self.output, self.group, named)

    def _known_as(self, topic: str) -> str:
        """Return the topic under which the offsets of a source topic are committed."""
        return PLACEHOLDER.format(topic=topic) if self.centre else topic

    def lag(self) -> dict[tuple[str, int], int]:
        """Return the group's lag for each source partition that has a committed offset."""
        known = self.committed()
        ends = {place: end for topic in self.sources for place, end in independent.ends(self.bootstrap, topic).items()}
        return {place: ends[place] - offset for place, offset in known.items()}


def slow_down(bootstrap: str, client: str, per_second: int) -> None:
    """Limit the producers with a client.id to this many bytes per second, with a quota."""
    change = ["--alter", "--add-config", f"producer_byte_rate={per_second}"]
    whom = ["--entity-type", "clients", "--entity-name", client]
    kafka_tool("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, *change, *whom)


class RunningTask:
    """A task in a thread that works until it is fenced."""

    def __init__(self, pipeline: Pipeline, ranges: tuple[OffsetRange, ...]) -> None:
        """Store the pipeline and the ranges to run."""
        self.receipts: dict[Partition, Receipt] = {}
        self._pipeline, self._ranges = pipeline, ranges
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.receipts = self._pipeline.run(*self._ranges, seconds=PATIENCE)

    def __enter__(self) -> Self:
        """Start the task and wait for its initial commit, which shows that it owns its partitions."""
        self._thread.start()
        until(lambda: len(self._pipeline.lag()) >= len(self._ranges), "the task to open")
        return self

    def __exit__(self, *_: object) -> None:
        """Fence the task and wait for its end."""
        fence = KafkaFence({"bootstrap.servers": self._pipeline.output}, self._pipeline.group, 60, self._pipeline.dead)
        while self._thread.is_alive():
            fence.fence([offset_range.partition for offset_range in self._ranges])
            self._thread.join(3)

    def ended(self, seconds: float = PATIENCE / 2) -> bool:
        """Wait for the end of the task; by default, not until its time is up. Return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


def alter(bootstrap: str, topic: str, **settings: object) -> None:
    """
    Change the configuration of a topic, and wait until the broker applies it. `_` stands for a dot.

    A broker first shows a change and then applies it to its logs, which no request shows. But it takes changes one after
    the other: once it shows a second one, the first is applied.
    """
    _set(bootstrap, topic, {name.replace("_", "."): str(value) for name, value in settings.items()})
    _set(bootstrap, topic, {"file.delete.delay.ms": str(time.time_ns() // 1_000_000)})  # harmless, and always new


def _set(bootstrap: str, topic: str, wanted: Mapping[str, str]) -> None:
    """Change the configuration of a topic, and wait until the broker shows that."""
    admin, resource = independent.client(bootstrap), partial(ConfigResource, ResourceType.TOPIC, topic)
    entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in wanted.items()]
    for altered in admin.incremental_alter_configs([resource(incremental_configs=entries)]).values():
        altered.result(PATIENCE)

    def is_shown() -> bool:
        (found,) = admin.describe_configs([resource()]).values()
        known = found.result(PATIENCE)
        return all(known[name].value == value for name, value in wanted.items())

    until(is_shown, f"the configuration of {topic}")


def make_pipeline(
    bootstrap: str,
    topics: Topics,
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    *,
    source: int | Mapping[str, str] = 1,
    sources: int = 1,
    sink: int | Mapping[str, str] = 1,
    dead: Mapping[str, str] | None = None,
    centre: Broker | None = None,
    **task_config: object,
) -> Pipeline:
    """
    Create topics for a test.

    Args:
        bootstrap: the address of Kafka.
        topics: the function that creates them.
        guarantee: the delivery guarantee.
        source: partitions of each source topic; or the configuration of one with a single partition.
        sources: the number of source topics.
        sink: partitions of the sink, or its configuration.
        dead: configuration of the dead-letter topic.
        centre: the cluster of the sink, the dead letters and the offsets, if it is not the source's.
        task_config: further fields of the task configuration.
    """

    def create(role: str, size: int | Mapping[str, str], at: Broker | None = None) -> str:
        partitions, config = (size, None) if isinstance(size, int) else (1, size)
        return topics(role, partitions, config, at)

    names = [create(f"raw{number}", source) for number in range(sources)]
    size = source if isinstance(source, int) else 1
    made = Pipeline(
        bootstrap,
        dict.fromkeys(names, size),
        create("clean", sink, centre),
        create("dead", dead or 1, centre),
        names[0],
        guarantee,
    )
    made.changes = task_config
    if centre is not None:
        made.centre = centre.bootstrap
        for name in names:
            centre.create_topic(PLACEHOLDER.format(topic=name), size)
    return made
