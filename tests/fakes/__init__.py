"""
A Kafka made of lists, and clients that follow a script in which a crash is an item.

`FakeKafka` keeps what a real one keeps: source records, committed offsets, the visible records of the sink and the dead
letters, and an epoch for each transactional id. `Script` lists what fails, at which point and at which passage.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from app.errors import Blocked, Fenced, PartitionError, Refused, Transient, Truncated, Unreachable
from app.model import (
    NO_EPOCH,
    Assignment,
    CommittedOffset,
    Destination,
    Guarantee,
    OffsetRange,
    Partition,
    Plugin,
    TaskConfig,
)
from app.offsets.claim import Claim
from app.records import Chunk, Lines, OutgoingRecord
from app.runtime import REAL, Runtime
from tests.fakes.simulation import Inline


class Point(StrEnum):
    """A point in a task's flow at which something can fail."""

    BEFORE_OPEN = "before_open"
    AFTER_OPEN = "after_open"
    BEFORE_SEND = "before_send"
    AFTER_SEND = "after_send"
    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"


class Trouble(StrEnum):
    """The kind of failure."""

    KILLED = "killed"
    TRANSIENT = "transient"
    FENCED = "fenced"
    BLOCKED = "blocked"


class Killed(BaseException):
    """The process died. Nothing happens after this point, not even clean-up."""


class Mishap(NamedTuple):
    """One item of a script: a failure, and the passage of its point, from 1, at which it happens."""

    point: Point
    trouble: Trouble
    times: int = 1


@dataclass(slots=True)
class Script:
    """The failures of one run."""

    mishaps: list[Mishap] = field(default_factory=list)
    passed: dict[Point, int] = field(default_factory=dict)
    dead: bool = False

    def at(self, point: Point, partition: Partition) -> None:
        """Pass a point, and raise the failure that the script has for it."""
        if self.dead:
            raise Killed
        self.passed[point] = self.passed.get(point, 0) + 1
        for mishap in self.mishaps:
            if mishap.point is point and mishap.times == self.passed[point]:
                self._strike(mishap.trouble, partition)

    def _strike(self, trouble: Trouble, partition: Partition) -> None:
        match trouble:
            case Trouble.KILLED:
                self.dead = True
                raise Killed
            case Trouble.FENCED:
                raise Fenced(partition, "by the script")
            case Trouble.TRANSIENT:
                raise Transient(partition, "by the script")
            case Trouble.BLOCKED:
                raise Blocked(partition, "by the script", cure="mend the script")


class SourceRecord(NamedTuple):
    """A source record. `CONTROL` stands for an offset without a record."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int = 1_000
    headers: Sequence[tuple[str, bytes | None]] = ()


CONTROL = None


class FakeKafka:
    """The state that outlives the processes."""

    def __init__(self, source: Mapping[Partition, Sequence[SourceRecord | None]]) -> None:
        self.source = {partition: list(records) for partition, records in source.items()}
        self.committed: dict[Partition, CommittedOffset] = {}
        self.sink: dict[Partition, list[bytes | None]] = {partition: [] for partition in source}
        self.dead: dict[Partition, list[OutgoingRecord]] = {partition: [] for partition in source}
        self.epochs: dict[Partition, int] = {}
        """The epochs of the transactional ids."""
        self.leader_epochs: dict[Partition, list[int]] = {}
        """Where the log of a partition was cut, once for each new leader. The first leader's epoch is 0."""
        self.pending: dict[Partition, CommittedOffset | None] = {}
        """
        Offsets of hanging transactions: a stable read waits until their writer's successor ends them. None for one that is
        ended as aborted.
        """
        self.ended_from: dict[Partition, int | None] = {}
        """The offset from which the last transaction that hung was looked for."""
        self.refuses_line: Callable[[bytes | None], bool] = lambda _: False
        self.refuses_dead_letter: Callable[[OutgoingRecord], bool] = lambda _: False
        """Selects the records that the broker refuses. It drops the batch of each, and the commit fails."""
        self.saves_left: float = math.inf
        """How often the offset store saves before it can only be read."""

    def cut(self, partition: Partition, offset: int, records: Sequence[SourceRecord | None] = ()) -> None:
        """Lose the end of a log in an unclean election. Other records follow."""
        self.source[partition] = [*self.source[partition][:offset], *records]
        self.leader_epochs[partition].append(offset)


class FakeClock:
    """A clock that each poll advances by a tick, so that a deadline arrives without waiting."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    @property
    def runtime(self) -> Runtime:
        """Return a runtime with this clock that runs each call of a lane at once. Its time does not pass by itself."""
        return replace(self.threaded, threads=Inline)

    @property
    def threaded(self) -> Runtime:
        """Return a runtime with this clock and real threads."""
        return replace(REAL, monotonic=self)


class FakeClients:
    """
    The fake clients of one process.

    Args:
        writers: makes the writer of a partition, by default the usual one of the delivery guarantee.
        consumers: makes the consumer, by default the usual one.
    """

    def __init__(
        self,
        kafka: FakeKafka,
        task_config: TaskConfig | None = None,
        clock: FakeClock | None = None,
        script: Script | None = None,
        *,
        writers: Callable[[FakeClients, Partition], FakeWriter] | None = None,
        consumers: Callable[[FakeClients], FakeConsumer] | None = None,
    ) -> None:
        self.kafka = kafka
        self.task_config = task_config or make_task_config()
        self.clock = clock or FakeClock()
        self.script = script or Script()
        self.made: list[FakeConsumer] = []
        usual = FakeTransaction if self.task_config.guarantee is Guarantee.EXACTLY_ONCE else FakeAcknowledged
        self._writers, self._consumers = writers or usual, consumers or FakeConsumer

    def consumer(self) -> FakeConsumer:
        self.made.append(self._consumers(self))
        return self.made[-1]

    def offsets(self) -> FakeOffsets:
        return FakeOffsets(self.kafka)

    def writer(self, partition: Partition, offsets: object) -> FakeWriter:
        return self._writers(self, partition)


class FakeOffsets:
    """The committed offsets of a fake Kafka, as a store."""

    transactional = True

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        if stable and not self._kafka.pending.keys().isdisjoint(partitions):
            raise Unreachable("Kafka does not answer: timed out")
        return {each: self._kafka.committed[each] for each in partitions if each in self._kafka.committed}

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        stored = self._kafka.committed.get(partition)
        if stored is not None and stored.offset > offset:
            raise Fenced(partition, "another owner has gone on", offset)
        self.reset(partition, offset, metadata)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        if not self._kafka.saves_left:
            raise Transient(partition, "the offset may not have been stored", offset)
        self._kafka.saves_left -= 1
        self._kafka.committed[partition] = CommittedOffset(offset, metadata)

    def close(self) -> None:
        pass


class FakeConsumer:
    """Reads a few records of each partition at a time, then reports each end once."""

    def __init__(self, clients: FakeClients, most: int = 3, tick: float = 0.2) -> None:
        self.reading: dict[Partition, int] = {}
        self.known: list[Partition] = []
        self.closed = False
        self._clients = clients
        self._most = most
        self._tick = tick
        self._reported_end: dict[Partition, int] = {}
        self._failures: list[PartitionError] = []
        self._silent: set[Partition] = set()
        self._thread = threading.current_thread()
        self.refused = False

    def connect(self, partitions: Iterable[Partition]) -> None:
        pass

    def start(self, partition: Partition, offset: int, epoch: int = NO_EPOCH) -> None:
        assert threading.current_thread() is self._thread, "the consumer's table of partitions is not locked"
        assert partition not in self.reading, "already reading"
        self.reading[partition] = offset
        if partition not in self.known:
            self.known.append(partition)
        if epoch != NO_EPOCH:
            cuts = self._clients.kafka.leader_epochs[partition][epoch:]
            self._failures += [Truncated(partition, offset, cut) for cut in cuts if cut < offset][:1]
        self._silent = {failure.partition for failure in self._failures}

    def stop(self, partition: Partition) -> None:
        del self.reading[partition]
        self._reported_end.pop(partition, None)

    def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
        self._clients.clock.now += self._tick
        rows: list[tuple[int, int, SourceRecord]] = []
        ends = []
        for partition, offset in self.reading.items():
            if partition in self._silent:
                continue
            log = self._clients.kafka.source[partition]
            after = min(offset + min(most or self._most, self._most), len(log))
            rows += [
                (self.known.index(partition), at, record)
                for at, record in enumerate(log[offset:after], offset)
                if record is not CONTROL
            ]
            self.reading[partition] = after
            if after == len(log) and self._reported_end.get(partition) != after:
                ends.append((partition, after))
                self._reported_end[partition] = after
        failures, self._failures = self._failures, []
        if not (rows or ends or failures):
            return None
        return replace(_chunk(self.known, rows, ends), epoch_of=lambda row: self._epoch(rows[row]), failures=failures)

    def _epoch(self, row: tuple[int, int, SourceRecord]) -> int:
        source, offset, _ = row
        cuts = self._clients.kafka.leader_epochs.get(self.known[source])
        return NO_EPOCH if cuts is None else sum(cut <= offset for cut in cuts)

    def close(self) -> None:
        self.closed = True


def _chunk(
    known: Sequence[Partition], rows: Sequence[tuple[int, int, SourceRecord]], ends: Sequence[tuple[Partition, int]]
) -> Chunk:
    return Chunk(
        partitions=known,
        sources=np.array([source for source, _, _ in rows], np.int32),
        offsets=np.array([offset for _, offset, _ in rows], np.int64),
        timestamps=np.array([record.timestamp for _, _, record in rows], np.int64),
        keys=pa.array([record.key for _, _, record in rows], pa.binary()),
        values=pa.array([record.value for _, _, record in rows], pa.binary()),
        headers=lambda row: rows[row][2].headers,
        epoch_of=lambda _: NO_EPOCH,
        ends=ends,
    )


class FakeWriter:
    """A writer that follows the script. Its subclass decides when its records become visible."""

    def __init__(self, clients: FakeClients, partition: Partition) -> None:
        self.suspect = False
        self.commits = self.freed = self.discarded = 0
        self._kafka = clients.kafka
        self._partition = partition
        self._script = clients.script
        self._epoch = 0
        self._settled = False
        self._refused = False

    def open(self) -> None:
        self._script.at(Point.BEFORE_OPEN, self._partition)
        self._epoch = self._kafka.epochs[self._partition] = self._kafka.epochs.get(self._partition, 0) + 1
        self._script.at(Point.AFTER_OPEN, self._partition)

    def settle(self, committed: CommittedOffset | None) -> None:
        """Accept the offset that was committed when the earlier owners were fenced."""
        assert committed == self._kafka.committed.get(self._partition)
        self._settled = True

    def end_pending(self, committed: int | None) -> None:
        """Accept the offset before the hanging transaction, and end that transaction."""
        assert self._epoch, "only the newest epoch can end it"
        now = self._kafka.committed.get(self._partition)
        assert now is None or committed == now.offset
        self._kafka.ended_from[self._partition] = committed
        if (pending := self._kafka.pending.pop(self._partition, None)) is not None:
            self._kafka.committed[self._partition] = pending

    def send(self, lines: Lines) -> None:
        assert self._settled, "an earlier transaction may still be open in the sink"
        self._script.at(Point.BEFORE_SEND, self._partition)
        values = lines.values.to_pylist()
        if any(map(self._kafka.refuses_line, values)):
            self._refused = True
        else:
            self._send(values)
        self._script.at(Point.AFTER_SEND, self._partition)

    def send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
        if any(map(self._kafka.refuses_dead_letter, dead_letters)):
            self._refused = True
        else:
            self._send_dead_letters(dead_letters)

    @property
    def full(self) -> bool:
        return False

    @property
    def waiting(self) -> int:
        return 0

    def send_rest(self) -> None:
        pass

    def abandon(self) -> None:
        pass

    def free(self) -> None:
        self.freed += 1

    def commit(self, offset: int, metadata: str) -> None:
        self._script.at(Point.BEFORE_COMMIT, self._partition)
        self._check_epoch()
        if self._refused:
            raise Refused(self._partition, "the broker does not like it")
        self._commit(CommittedOffset(offset, metadata))
        self.commits += 1
        self._script.at(Point.AFTER_COMMIT, self._partition)

    def reset(self, offset: int, metadata: str) -> None:
        self._kafka.committed[self._partition] = CommittedOffset(offset, metadata)

    def discard(self) -> None:
        self.discarded += 1

    def _check_epoch(self) -> None:
        pass

    def _send(self, values: list[bytes | None]) -> None:
        self._kafka.sink[self._partition] += values

    def _send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
        self._kafka.dead[self._partition] += dead_letters

    def _commit(self, at: CommittedOffset) -> None:
        self._kafka.committed[self._partition] = at


class FakeAcknowledged(FakeWriter):
    """At least once: a record is visible as soon as it is sent, and the offset is saved under a claim."""

    def __init__(self, clients: FakeClients, partition: Partition) -> None:
        super().__init__(clients, partition)
        self._claim = Claim(FakeOffsets(self._kafka), partition, clients.task_config.owner)

    def settle(self, committed: CommittedOffset | None) -> None:
        super().settle(committed)
        self._claim.begin(committed, self._fence)

    def _fence(self) -> None:
        self._kafka.epochs[self._partition] = self._kafka.epochs.get(self._partition, 0) + 1

    def _commit(self, at: CommittedOffset) -> None:
        self._claim.save(at.offset, at.metadata)

    def reset(self, offset: int, metadata: str) -> None:
        self._claim.reset(offset, metadata)


class FakeTransaction(FakeWriter):
    """Exactly once: a record is visible once it is committed, and only the newest epoch may commit."""

    def __init__(self, clients: FakeClients, partition: Partition) -> None:
        super().__init__(clients, partition)
        self._values: list[bytes | None] = []
        self._dead_letters: list[OutgoingRecord] = []

    def _check_epoch(self) -> None:
        if self._epoch != self._kafka.epochs[self._partition]:
            raise Fenced(self._partition, "a newer epoch exists")

    def _send(self, values: list[bytes | None]) -> None:
        self._check_epoch()
        self._values += values

    def _send_dead_letters(self, dead_letters: Sequence[OutgoingRecord]) -> None:
        self._check_epoch()
        self._dead_letters += dead_letters

    @property
    def waiting(self) -> int:
        """Nothing is acknowledged before the commit."""
        return len(self._values) + len(self._dead_letters)

    def _commit(self, at: CommittedOffset) -> None:
        super()._send(self._values)
        super()._send_dead_letters(self._dead_letters)
        super()._commit(at)
        self._values, self._dead_letters = [], []


def make_task_config(guarantee: Guarantee = Guarantee.EXACTLY_ONCE, **changes: object) -> TaskConfig:
    """Make a task configuration that needs no Kafka."""
    usual: dict[str, object] = {
        "group": "g",
        "sink": Destination("clean", 2, 1_000_000),
        "dead_letters": Destination("dead", 1, 1_000_000),
        "format": "raw",
        "parser": Plugin("idc-access-log"),
        "kafka": {"bootstrap.servers": "nowhere:9092"},
    }
    return TaskConfig(guarantee=guarantee, **(usual | changes))  # type: ignore[arg-type]  # fields of many types


def make_assignment(task_config: TaskConfig, *ranges: OffsetRange, seconds: float = 3.0) -> Assignment:
    """Make an assignment of these ranges."""
    return Assignment(task_config, ranges, seconds, deadline=0.0)
