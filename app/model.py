"""The frozen, picklable values that cross process boundaries. Clients never do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple, Self

from app.rates import BUFFER_MEMORY, UNLIMITED, BreakerLimit, Rates, Window


class Guarantee(StrEnum):
    """What readers of the sink can rely on."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Partitioner(StrEnum):
    """What chooses a line's sink partition."""

    SOURCE = "source"
    KEY = "key"


SOURCE_KEY = "source"
"""The `sink.key` that keeps the source record's key; any other value names an output field."""


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    def at(self, offset: int | None) -> str:
        """Name the place of an offset in it; only itself if the offset is unknown."""
        return f"{self}" if offset is None else f"{self}@{offset}"

    def as_json(self) -> dict[str, object]:
        """Return the fields by which the log and `--json` name it."""
        return {"topic": self.topic, "partition": self.number}


def numbers_by_topic(partitions: Iterable[Partition]) -> Mapping[str, list[int]]:
    numbers = defaultdict(list)
    for partition in partitions:
        numbers[partition.topic].append(partition.number)
    return numbers


def in_ranges(numbers: Iterable[int]) -> list[str]:
    """Format ascending numbers: `0-3` and `7`."""
    runs = (list(run) for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]))
    return [f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else str(run[0][1]) for run in runs]


def topic_id_of(text: str) -> str:
    """Return a topic's id; empty for zeros, which stand for none until all brokers work as Kafka 2.8 or newer."""
    return "" if text == "A" * 22 else text


def topics_differ(topic_id: str, other: str) -> bool:
    """Return whether two ids are of different topics; a topic without an id may be any."""
    return bool(topic_id and other and topic_id != other)


class Topic(NamedTuple):
    """A topic as it is now; a topic that is deleted and created again gets another id."""

    name: str
    id: str
    partitions: int
    leaderless: frozenset[int] = frozenset()
    """The partitions that have no leader now."""
    behind: frozenset[tuple[int, int]] = frozenset()
    """The under-replicated partitions, each with its number of in-sync replicas."""


def partitions_of(topics: Iterable[Topic]) -> list[Partition]:
    """Return every partition of these topics, including those without a leader."""
    return [Partition(topic.name, number) for topic in topics for number in range(topic.partitions)]


class Watermarks(NamedTuple):
    """A partition's log start offset, last stable offset (where committed records end) and high watermark."""

    log_start: int
    last_stable: int
    high_watermark: int


class FirstWaiting(NamedTuple):
    """
    The first unread record of a partition.

    Args:
        since: its timestamp in seconds since the epoch, or that of an older record before it. None if only offsets
            without a record wait, such as those of an aborted transaction.
        retention: the topic's retention in seconds; None if it is unlimited or unknown.
    """

    since: float | None
    retention: float | None = None


class Owner(NamedTuple):
    """
    A run of the service, as named in the metadata of each offset that its tasks commit.

    Within a generation, a later run compares as larger.

    Args:
        started: milliseconds since the epoch.
        generation: a run of a higher generation takes over.
    """

    started: int = 0
    host: str = ""
    sink: str = ""
    generation: int = 0

    @property
    def rank(self) -> tuple[int, Owner]:
        """The order of takeover: of two runs, the one with the larger rank continues."""
        return self.generation, self

    @property
    def started_at(self) -> str:
        """When it started, as ISO 8601 in UTC."""
        return datetime.fromtimestamp(self.started / 1000, UTC).isoformat(timespec="milliseconds")

    def __str__(self) -> str:
        of = f" of generation {self.generation}" if self.generation else ""
        return f"the service{of} on {self.host} that started at {self.started_at} and writes to {self.sink}"


def latest(owners: Iterable[Owner]) -> Owner:
    """Return the run that continues: the latest one of the highest generation."""
    return max(owners, key=lambda owner: owner.rank)


NOBODY = Owner()
"""The owner of an offset that names none: an operator or an earlier version committed it."""
NO_EPOCH = -1
"""An unknown leader epoch."""


class Pause(NamedTuple):
    """
    An operator's pause of the service.

    Args:
        since: milliseconds since the epoch.
        by: the machine on which it was requested.
    """

    since: int
    by: str

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.since / 1000, UTC).isoformat(timespec="seconds")
        return f"paused since {at}, from {self.by}"


class LastRead(NamedTuple):
    """
    The last record read from a partition; its leader epoch lets Kafka detect a truncated log (KIP-320).

    Args:
        after: the offset after it. The committed offset may be larger because of control records.
        epoch: its leader epoch.
    """

    after: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """
    The next offset to read of one partition.

    Args:
        offset: -1 if it is corrupt.
        corrupt: what the store holds instead of an offset; empty if it holds an offset.
    """

    offset: int
    metadata: str = ""
    corrupt: str = ""

    @classmethod
    def not_readable(cls, what: str) -> CommittedOffset:
        """Return the value for something stored that is not an offset."""
        return cls(-1, corrupt=what)

    def __str__(self) -> str:
        return self.corrupt or str(self.offset)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """
    The part of one source partition that a task reads.

    Args:
        committed: the committed offset at planning; None if there was none.
        start: the first offset to read, if the committed offset is still `committed` when the task opens.
        end: the offset to stop before; None to read until the task's deadline.
        topic_id: goes into the metadata of each commit.
        log_start: the partition's first offset at planning.
        backlog: the last stable offset at planning: if the group starts here, records below it are its backlog.
        counted: with a start below `committed`, the records counted with that offset: an attempt may have come to it
            again, with other counts. None with any other start.
        cut: where the log was truncated below the committed offset; None if it was not.
        never_read: whether only a task's receipt tells `committed`. Kafka may have lost it since: its transaction hung,
            and the abort of the next one ended both.
        metadata: that of the committed offset, for a task whose store remembers nothing.
    """

    partition: Partition
    committed: int | None
    start: int
    end: int | None = None
    topic_id: str = ""
    log_start: int = 0
    backlog: int = 0
    counted: int | None = None
    cut: int | None = None
    never_read: bool = False
    metadata: str = ""

    @property
    def planned(self) -> CommittedOffset | None:
        """The committed offset at planning; None if there was none."""
        return None if self.committed is None else CommittedOffset(self.committed, self.metadata)


UNLIMITED_MS = (1 << 63) - 1
"""The largest 64-bit number, which stands for any timestamp in a topic's configuration."""


class TimestampLimit(NamedTuple):
    """A topic setting that limits how far a record's timestamp may be from the broker's clock."""

    setting: str
    milliseconds: int

    @classmethod
    def of(cls, settings: Mapping[str, str], side: str) -> Self | None:
        """
        Return the limit on one side of the clock, `before` or `after`; None if unlimited or unknown.

        Kafka 3.6 split `message.timestamp.difference.max.ms` in two. Until Kafka 4, it applies if the new one is unset.
        """
        for name in (f"message.timestamp.{side}.max.ms", "message.timestamp.difference.max.ms"):
            if (limit := int(settings.get(name, UNLIMITED_MS))) != UNLIMITED_MS:
                return cls(name, limit)
        return None


@dataclass(frozen=True, slots=True)
class Destination:
    """
    A topic that Winnow writes to, and the records it accepts.

    Args:
        max_bytes: the largest record batch it accepts.
        compression: the codec that the broker stores records with; `producer` keeps the producer's.
        compacted: whether it accepts only records with a key.
        before: how old a record may be; None for any age.
        after: how far in the future a record's timestamp may be; None for any distance.
        append_time: whether the broker replaces timestamps with the time of writing.
        retention: in milliseconds; None if unknown, or if more than time decides what is deleted.
        known: whether we may read its configuration; otherwise Kafka's defaults are assumed.
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
    known: bool = True


@dataclass(frozen=True, slots=True)
class Plugin:
    """The registered name of a parser or an offset store, and its options."""

    name: str
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilterRule:
    """
    A rule that drops lines on purpose.

    Args:
        field: the output field that it looks at.
        check: the check and its parameter.
        keeps: whether it drops the lines that do not pass; otherwise those that pass.
        limit: the share of the records, above which its drops are a warning; None for any.
    """

    name: str
    field: str
    check: Mapping[str, object]
    keeps: bool = False
    limit: float | None = None


class SinkKafka(dict[str, str]):
    """
    The properties of the sink's cluster, if it is another one than the source's.

    Every client is made from the properties of its cluster, so this type tells messages which one to name.
    """


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """
    The configuration shared by all tasks of a run; durations are in seconds.

    `kafka` holds the properties of the source's cluster, and `sink_kafka` those of the cluster of sink, dead letters
    and offsets if it is another one. `placeholder` is the template of the topics that offsets are committed under
    there. `sink_key` is an output field, or `SOURCE_KEY`. `lineage` adds the source record to each line's headers.
    `buffer_memory` limits a task's unacknowledged bytes.
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
    filters: tuple[FilterRule, ...] = ()
    sink_key: str = SOURCE_KEY
    sink_partitioner: Partitioner = Partitioner.SOURCE
    rates: Rates = UNLIMITED
    buffer_memory: int = BUFFER_MEMORY
    breaker: BreakerLimit | None = None
    log_level: str = "info"

    @property
    def output_kafka(self) -> Mapping[str, str]:
        return SinkKafka(self.sink_kafka) if self.sink_kafka else self.kafka


class Attempt(NamedTuple):
    """
    An attempt at a task.

    Args:
        round: from 1 in each run of the service.
        task: from 0 in each round.
        number: from 0 for each task.
    """

    round: int = 0
    task: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """
    What one task does in one round.

    Args:
        seconds: how long the task works.
        deadline: the end of the round by the driver's clock, in seconds since the epoch. A retried task ends by it, and
            every task judges timestamps by it, too, because its own clock may be wrong.
        isolate: whether to run the parser in a process of its own, because a record may kill it.
        takes_over: whether another run works on these partitions, so that they are taken over one by one.
        allowances: the bytes per transaction that the last round settled on, for partitions with a slow sink.
        windows: what the last round left in the breaker's windows.
    """

    config: TaskConfig
    ranges: tuple[OffsetRange, ...]
    seconds: float
    deadline: float
    attempt: Attempt = field(default_factory=Attempt)
    isolate: bool = False
    takes_over: bool = False
    allowances: Mapping[Partition, int] = field(default_factory=dict)
    windows: Mapping[Partition, Window] = field(default_factory=dict)

    def control_partition(self, hanging: Container[Partition] = ()) -> Partition:
        """Return the partition that the driver fences to end the task: the first one that is not hanging."""
        partitions = [each.partition for each in self.ranges]
        return next((each for each in partitions if each not in hanging), partitions[0])


class Outcome(StrEnum):
    """How a task's work on one partition ended."""

    DONE = "done"
    FENCED = "fenced"
    FAILED = "failed"  # the next round tries again
    BLOCKED = "blocked"  # it waits for an operator


@dataclass(frozen=True, slots=True)
class Receipt:
    """
    What one task did with one partition; only committed work counts.

    Args:
        start: the first offset of the task's work.
        end: the committed offset.
        records: source records between them.
        dead: dead letters by reason.
        filtered: records dropped on purpose by the name of the filter.
        error: the last error; empty if there was none.
        cure: what an operator must do about it.
        reopened: how often the producer was replaced.
        metadata: committed with `end`; empty if the task committed nothing.
        tripped: whether the breaker tripped, so that it waits for another configuration or another offset.
        allowance: the bytes per transaction that its slow sink allows; None if it is not slow.
        window: what is in the breaker's window, for the partition's next task.
    """

    partition: Partition
    start: int
    end: int
    records: int = 0
    out: int = 0
    dead: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.DONE
    error: str = ""
    cure: str = ""
    reopened: int = 0
    metadata: str = ""
    tripped: bool = False
    allowance: int | None = None
    window: Window = ()

    @property
    def balances(self) -> bool:
        """Whether every record went to the sink or to the dead letters, or was dropped on purpose."""
        return self.records == self.out + sum(self.dead.values()) + sum(self.filtered.values())


def transactional_ids(group: str) -> str:
    """Return what all transactional ids of a group begin with."""
    return f"winnow/{group}/"


def transactional_id(group: str, partition: Partition) -> str:
    """Return the id of a source partition's only producer; it is unambiguous because topic names cannot contain `/`."""
    return f"{transactional_ids(group)}{partition.topic}/{partition.number}"
