"""The seam between the driver and Kafka and Spark: protocols that the real clients and the tests' fakes implement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.model import Assignment, Destination, Partition, Receipt, Topic, Watermarks
from app.offsets.contract import OffsetStore
from app.offsets.mirrors import Mirrors


class Topics(Protocol):
    """
    What the driver asks about topics.

    Every method raises Unreachable where Kafka does not answer, and NotUsable where a person must act.
    """

    def source_topics(self, names: Collection[str], pattern: str | None, known: Collection[str]) -> Mapping[str, Topic]:
        """Return the topics of that name or pattern; raise TopicMissing for one that is gone and not known."""
        ...

    def destination(self, name: str) -> Destination:
        """Return a topic that we write to; raise TopicMissing where it does not exist."""
        ...

    def watermarks(self, partitions: Iterable[Partition]) -> Mapping[Partition, Watermarks]:
        """Return the watermarks of each partition that answers; raise Unreachable where none of them does."""
        ...

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> Mapping[Partition, int | None]:
        """
        Return the first offset at or after a time, of each partition that answers; None where there is none yet.

        Raises Unreachable where no partition answers.
        """
        ...


class Group(Protocol):
    """What the driver asks about its consumer group."""

    def refuse_foreign_members(self) -> None:
        """Raise ForeignMember if somebody else consumes in the group."""
        ...


class Fence(Protocol):
    """The driver's means to end tasks."""

    def refuse_short_transactions(self) -> None:
        """Raise NotUsable if the brokers allow only shorter transactions than ours; changes nothing."""
        ...

    def fence(self, partitions: Iterable[Partition]) -> bool:
        """
        Shut out whoever owns these partitions; return whether one was reached.

        Raises NotUsable where Kafka refuses that and a person must act.
        """
        ...


class Placeholders(Protocol):
    """
    Makes room for offsets where the sink has a cluster of its own; see `app.kafka.placeholders`.

    Every method raises Unreachable where that cluster does not answer, and NotUsable where a person must act.
    """

    def make_room(self, partitions: Iterable[Partition]) -> None:
        """Create what is missing for the offsets of these partitions."""
        ...

    def lacking(self, partitions: Iterable[Partition]) -> Mapping[str, int]:
        """Return the topics that `make_room` would create or grow, with the partitions that each needs."""
        ...


@dataclass(frozen=True, slots=True)
class Clients:
    """
    Everything that the driver talks to, except Spark.

    Args:
        topics: the topics of the source.
        destinations: the topics that are written to; those of another cluster where the sink has its own.
        group: the consumer group.
        fence: ends tasks.
        offsets: where the next offsets are remembered.
        placeholders: makes room for offsets; None where source and sink are on one cluster.
        copies: the group's offsets on the source's cluster, where the sink has its own and offsets are kept elsewhere.
    """

    topics: Topics
    destinations: Topics
    group: Group
    fence: Fence
    offsets: OffsetStore
    mirrors: Mirrors = field(default_factory=Mirrors)
    placeholders: Placeholders | None = None
    copies: OffsetStore | None = None


class RunningRound(Protocol):
    """A round that tasks work on; see `app.spark.job`."""

    @property
    def lost_tasks(self) -> int:
        """How many attempts have failed."""
        ...

    @property
    def done_tasks(self) -> int:
        """How many tasks have reported."""
        ...

    @property
    def starved(self) -> bool:
        """Whether a task finds no slot."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for the round's end; return whether it has ended."""
        ...

    def cancel(self) -> None:
        """Kill the tasks."""
        ...

    def receipts(self) -> Sequence[Receipt]:
        """Return what the tasks report; raise SparkFailed if the round was cancelled or lost."""
        ...


class Rounds(Protocol):
    """Runs rounds: Spark, except in tests."""

    @property
    def slots(self) -> int:
        """How many tasks can run at once now."""
        ...

    def submit(self, assignments: Sequence[Assignment]) -> RunningRound:
        """Start a round."""
        ...

    def stop(self) -> None:
        """Release what it holds."""
        ...
