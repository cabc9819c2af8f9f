"""The values that cross processes: frozen, picklable, made of str and int. Clients never travel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from app.rates import BUFFER_MEMORY, UNLIMITED, BreakerLimit, Rates


class Guarantee(StrEnum):
    """What readers of the sink can rely on."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Partitioner(StrEnum):
    """What decides which partition of the sink a line goes to."""

    SOURCE = "source"
    KEY = "key"


SOURCE_KEY = "source"
"""What stands for the key of the source record, where a field of the output could be a line's key."""


class Partition(NamedTuple):
    """One partition of a source topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


def numbers_by_topic(partitions: Iterable[Partition]) -> Mapping[str, list[int]]:
    """Return the numbers of these partitions for each of their topics, in the given order."""
    numbers = defaultdict(list)
    for partition in partitions:
        numbers[partition.topic].append(partition.number)
    return numbers


class Topic(NamedTuple):
    """A topic as it is now; a topic that was deleted and created again has another id."""

    name: str
    id: str
    partitions: int
    leaderless: frozenset[int] = frozenset()
    """The partitions that have no leader now."""
    behind: frozenset[tuple[int, int]] = frozenset()
    """The partitions of which not all replicas are in sync, and how many are."""


def partitions_of(topics: Iterable[Topic]) -> list[Partition]:
    """Return every partition of these topics, those without a leader, too."""
    return [Partition(topic.name, number) for topic in topics for number in range(topic.partitions)]


class Watermarks(NamedTuple):
    """The first offset that still exists, the last stable offset (committed records end there), the high watermark."""

    log_start: int
    last_stable: int
    high_watermark: int


class Waiting(NamedTuple):
    """
    The first record of a partition that waits to be read.

    Args:
        since: its timestamp, in seconds since the epoch, or that of a record before it, which is older. None where only
            offsets without a record wait, such as those of an aborted transaction.
        retention: for how many seconds its topic keeps records; None where that is not limited or not known.
    """

    since: float | None
    retention: float | None = None


class Owner(NamedTuple):
    """
    A run of the service, as it names itself beside each offset that its tasks commit.

    Of two runs of one generation the later one is larger.

    Args:
        started: when it started, in milliseconds since the epoch.
        host: where its driver runs.
        sink: the topic that it writes to.
        generation: a run of a later generation takes over from it.
    """

    started: int = 0
    host: str = ""
    sink: str = ""
    generation: int = 0

    @property
    def rank(self) -> tuple[int, Owner]:
        """Which of two runs goes on where they meet: the one whose rank is larger."""
        return self.generation, self

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.started / 1000, UTC).isoformat(timespec="milliseconds")
        of = f" of generation {self.generation}" if self.generation else ""
        return f"the service{of} on {self.host} that started at {at} and writes to {self.sink}"


def latest(owners: Iterable[Owner]) -> Owner:
    """Return the run that goes on where these meet: the latest of the last generation."""
    return max(owners, key=lambda owner: owner.rank)


NOBODY = Owner()
"""The owner of an offset that names none: a person or an earlier version committed it."""
NO_EPOCH = -1
"""The leader epoch where none is known."""


class Pause(NamedTuple):
    """
    That a person has paused the service.

    Args:
        since: when, in milliseconds since the epoch.
        by: on which machine.
    """

    since: int
    by: str

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.since / 1000, UTC).isoformat(timespec="seconds")
        return f"paused since {at}, from {self.by}"


class LastRead(NamedTuple):
    """
    The last record that was read of a partition: by its leader epoch Kafka tells whether the log was cut (KIP-320).

    Args:
        after: the offset after it. The committed offset may be larger: control records follow.
        epoch: the term of the leader that took it.
    """

    after: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """
    The next offset to read of one partition.

    Args:
        offset: the offset; -1 where it cannot be read.
        metadata: what was committed beside it.
        corrupt: what stands there instead of an offset; empty where it is one.
    """

    offset: int
    metadata: str = ""
    corrupt: str = ""

    @classmethod
    def not_readable(cls, what: str) -> CommittedOffset:
        """Return what stands for something that is stored and is not an offset."""
        return cls(-1, corrupt=what)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """
    What a task reads of one source partition.

    Args:
        partition: which partition.
        committed: the committed offset that the driver planned with; None where there was none.
        start: the first offset to read, if the committed offset is still `committed` when the task opens.
        end: the offset to stop before; None means that the task reads until its deadline.
        topic_id: the id of its topic, which goes into the metadata of each commit.
        log_start: the first offset that the partition still held when it was planned.
        backlog: where committed records ended then: if the group begins here, what waits up to there is its backlog.
    """

    partition: Partition
    committed: int | None
    start: int
    end: int | None = None
    topic_id: str = ""
    log_start: int = 0
    backlog: int = 0


class TimestampLimit(NamedTuple):
    """How far from the broker's clock the timestamp of a record may lie, by a setting of its topic."""

    setting: str
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Destination:
    """
    A topic that Winnow writes to, and which records it takes.

    Args:
        topic: its name.
        partitions: how many it has.
        max_bytes: the size of the largest record batch that it takes.
        compression: the codec that the broker stores records with; `producer` keeps that of the producer.
        compacted: whether it takes only records that have a key.
        before: how old a record may be; None where it may have any age.
        after: how far in the future the timestamp of a record may lie; None where it may lie anywhere.
        append_time: whether records get the time of writing instead of their own.
        retention: for how many milliseconds it keeps records; None where time alone does not decide, or is not known.
    """

    topic: str
    partitions: int
    max_bytes: int
    compression: str = "producer"
    compacted: bool = False
    before: TimestampLimit | None = None
    after: TimestampLimit | None = None
    append_time: bool = False
    retention: int | None = None


@dataclass(frozen=True, slots=True)
class Plugin:
    """The name that a parser or an offset store is registered under, and its options."""

    name: str
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """
    What every task of a run has in common; durations are in seconds.

    `kafka` are the properties of the source's cluster. `sink_kafka` are those of the cluster of sink, dead letters and
    offsets; empty where that is the same. `placeholder` names the topics that offsets are committed to there.
    `sink_key` is the field of the output that is the key of a line, or `SOURCE_KEY`. `lineage` says whether lines tell
    which record they were. `buffer_memory` is how many bytes a task may hold that are not acknowledged.
    """

    group: str
    guarantee: Guarantee
    sink: Destination
    dead_letters: Destination
    format: str
    parser: Plugin
    kafka: Mapping[str, str]
    sink_kafka: Mapping[str, str] = field(default_factory=dict)
    placeholder: str = ""
    offset_store: Plugin = Plugin("kafka")
    owner: Owner = NOBODY
    mirrors: tuple[Plugin, ...] = ()
    commit_seconds: float = 0.5
    transaction_seconds: float = 60.0
    flume_headers: tuple[str, ...] = ()
    lineage: bool = False
    sink_key: str = SOURCE_KEY
    sink_partitioner: Partitioner = Partitioner.SOURCE
    rates: Rates = UNLIMITED
    buffer_memory: int = BUFFER_MEMORY
    breaker: BreakerLimit | None = None
    log_level: str = "info"

    @property
    def output_kafka(self) -> Mapping[str, str]:
        """The properties of the cluster that is written to."""
        return self.sink_kafka or self.kafka


class Attempt(NamedTuple):
    """
    An attempt at a task.

    Args:
        round: 1 for the first round of a run of the service.
        task: 0 for the first task of the round.
        number: 0 for the first attempt at the task.
    """

    round: int = 0
    task: int = 0
    number: int = 0


UNNUMBERED = Attempt()


@dataclass(frozen=True, slots=True)
class Assignment:
    """
    What one task does in one round.

    Args:
        config: what all tasks have in common.
        ranges: the partitions that the task owns.
        seconds: how long the task works.
        deadline: when the round ends by the driver's clock, in seconds since the epoch; only a retried task uses it.
        attempt: which task it is.
        isolate: whether the parser gets a process of its own, because a record may have ended the last worker.
        takes_over: whether another run works on these partitions, so that they are taken over one by one.
        allowances: how many bytes a partition took in a transaction in the last round, where its sink was slow.
    """

    config: TaskConfig
    ranges: tuple[OffsetRange, ...]
    seconds: float
    deadline: float
    attempt: Attempt = UNNUMBERED
    isolate: bool = False
    takes_over: bool = False
    allowances: Mapping[Partition, int] = field(default_factory=dict)

    def control_partition(self, hanging: Container[Partition] = ()) -> Partition:
        """Return the partition that the driver fences to end the task: its first one that does not hang."""
        partitions = [each.partition for each in self.ranges]
        return next((each for each in partitions if each not in hanging), partitions[0])


class Outcome(StrEnum):
    """How a task's work on one partition ended."""

    DONE = "done"
    FENCED = "fenced"
    FAILED = "failed"  # the next round tries again
    BLOCKED = "blocked"  # it waits for a person


@dataclass(frozen=True, slots=True)
class Receipt:
    """
    What one task did with one partition: only what is committed counts.

    Args:
        partition: which partition.
        start: the first offset of the task's work.
        end: the committed offset: the next one to read.
        records: source records between them.
        out: records written to the sink.
        dead: records written to the dead letters, by reason.
        outcome: how it ended.
        error: the last error, for the operator; empty if there was none.
        cure: what to do about it, where a person must act.
        cut: where the partition ends or ended below `end`; None where the task found no such thing.
        reopened: how often the producer had to be replaced.
        metadata: what the task committed beside `end`; empty if it committed nothing.
        tripped: whether it holds too many dead letters; then it waits for another configuration or another offset.
        allowance: how many bytes it takes in a transaction, because its sink is slow; None where it is not.
    """

    partition: Partition
    start: int
    end: int
    records: int = 0
    out: int = 0
    dead: Mapping[str, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.DONE
    error: str = ""
    cure: str = ""
    cut: int | None = None
    reopened: int = 0
    metadata: str = ""
    tripped: bool = False
    allowance: int | None = None

    @property
    def balances(self) -> bool:
        """Whether every record that came in went to the sink or to the dead letters."""
        return self.records == self.out + sum(self.dead.values())


def transactional_id(group: str, partition: Partition) -> str:
    """Return the id of the one producer that may write for a source partition; no topic name can hold its `/`."""
    return f"winnow/{group}/{partition.topic}/{partition.number}"
