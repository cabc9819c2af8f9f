"""The values that cross processes: frozen, picklable, made of str and int. Clients never travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

METADATA_MARK = "winnow"
"""How a metadata of ours begins."""


class Guarantee(StrEnum):
    """What readers of the sink are promised."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Partition(NamedTuple):
    """One partition of a source topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class OffsetMetadata(NamedTuple):
    """
    What a task leaves beside each offset that it commits, in the same transaction.

    Args:
        topic_id: tells a topic from one of the same name that was created later; empty where the broker gives none.
        since: the offset from which the task counts.
        records: how many records there were up to the committed offset.
        dead: how many of them went to the dead letters.
    """

    topic_id: str = ""
    since: int = 0
    records: int = 0
    dead: int = 0

    def __str__(self) -> str:
        return f"{METADATA_MARK} topic={self.topic_id} since={self.since} in={self.records} dead={self.dead}"

    @classmethod
    def read(cls, text: str) -> OffsetMetadata:
        """Read a metadata; one that somebody else has left says nothing."""
        first, *words = text.split() or [""]
        told = dict(word.partition("=")[::2] for word in words) if first == METADATA_MARK else {}
        counts = (told.get(name, "") for name in ("since", "in", "dead"))
        return cls(told.get("topic", ""), *(int(count) if count.isdecimal() else 0 for count in counts))


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What the group remembers of a partition: the next offset to read, and the metadata that lies beside it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """
    One source partition as a task receives it.

    Args:
        partition: which.
        committed: the group's offset that the driver planned with; None where the group had none.
        start: where to begin if the group's offset still is `committed`.
        end: stop before this offset; None means: go on until the deadline.
        topic_id: of its topic, to be noted beside each committed offset.
    """

    partition: Partition
    committed: int | None
    start: int
    end: int | None = None
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class Destination:
    """A topic that we write to: its partition count and the largest record batch it takes, in bytes."""

    topic: str
    partitions: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """What every task of a run has in common."""

    group: str
    guarantee: Guarantee
    sink: Destination
    dead_letters: Destination
    format: str
    parser: str
    parser_options: Mapping[str, object]
    kafka: Mapping[str, str]
    commit_seconds: float = 0.5
    transaction_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """
    What one task does in one round.

    Args:
        config: what all tasks have in common.
        ranges: the partitions it owns. The first is its *control_partition*: the driver ends the task by fencing it.
        seconds: how long the task works.
        deadline: when the round ends by the driver's clock (seconds since the epoch); only a retried task looks at it.
    """

    config: TaskConfig
    ranges: tuple[OffsetRange, ...]
    seconds: float
    deadline: float

    @property
    def control_partition(self) -> Partition:
        """The partition whose loss ends the task."""
        return self.ranges[0].partition


class Outcome(StrEnum):
    """How a task's work on one partition ended."""

    DONE = "done"
    FENCED = "fenced"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Receipt:
    """
    What one task did with one partition: only what is committed counts.

    Args:
        partition: which.
        start: the first offset that was looked at.
        end: the next offset, as committed.
        records: source records between them.
        out: records written to the sink.
        dead: records written to the dead letters, by reason.
        outcome: how it ended.
        error: what went wrong on the way, for the operator; empty if nothing did.
        reopened: how often the producer had to be replaced.
    """

    partition: Partition
    start: int
    end: int
    records: int = 0
    out: int = 0
    dead: Mapping[str, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.DONE
    error: str = ""
    reopened: int = 0

    @property
    def balances(self) -> bool:
        """Whether every record that came in went out or to the dead letters."""
        return self.records == self.out + sum(self.dead.values())


def transactional_id(group: str, partition: Partition) -> str:
    """Name the one producer that may write for a source partition; `/` cannot occur in a topic's name."""
    return f"winnow/{group}/{partition.topic}/{partition.number}"
