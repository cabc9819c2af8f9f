"""The seam between the driver and Kafka and Spark: protocols that the real clients and the tests' fakes implement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.cures import KafkaTools
from app.facts import BrokerFacts, TopicFacts
from app.model import Assignment, Destination, Partition, Pause, Receipt, Topic, Waiting, Watermarks
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

    def min_in_sync(self, name: str) -> int:
        """Return how many replicas of a partition must be in sync for it to take records."""
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

    def offset_retention(self) -> float | None:
        """Return for how many seconds brokers keep an offset that nobody commits again; None where we may not know."""
        ...


class Fence(Protocol):
    """The driver's means to end tasks."""

    def refuse_short_transactions(self) -> None:
        """Raise NotUsable if the brokers allow only shorter transactions than ours; changes nothing."""
        ...

    def refuse_forbidden_ids(self) -> None:
        """Raise NotAllowed if we may not use the group's transactional ids; changes nothing."""
        ...

    def fence(self, partitions: Iterable[Partition]) -> Collection[Partition]:
        """
        Shut out whoever owns these partitions; return those that were reached: each id has a coordinator of its own.

        Raises NotUsable where Kafka refuses that and a person must act.
        """
        ...


class Pauses(Protocol):
    """Tells whether a person has paused the service; see `app.driver.pause`."""

    def read(self) -> Pause | None:
        """Return the pause; raise Unreachable where Kafka does not answer, and NotUsable where a person must act."""
        ...

    def set(self, pause: Pause) -> None:
        """Pause the service, or renew its pause; raise PartitionError where it is unknown whether that was done."""
        ...

    def clear(self) -> None:
        """Let the service go on; raises what `read` and `set` do."""
        ...


class NeverPaused:
    """What no person can pause."""

    def read(self) -> Pause | None:
        """Return no pause."""

    def set(self, pause: Pause) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""


class Cluster(Protocol):
    """
    What a preflight asks a cluster; see `app.driver.preflight`. Nothing of it changes anything.

    Every method raises Unreachable where Kafka does not answer, and NotUsable where a person must act.
    """

    tools: KafkaTools
    """Kafka's own tools for this cluster, for what a person must do."""

    def id(self) -> str:
        """Return what the cluster calls itself; empty where it does not tell."""
        ...

    def brokers(self) -> BrokerFacts:
        """Return what the brokers can do."""
        ...

    def topics(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        """Return what is known of each topic; one that does not exist is left out."""
        ...

    def group_rights(self, group: str) -> frozenset[str] | None:
        """Return what we may do with a group, such as `Read`; None where the broker does not tell."""
        ...

    def newest_commit(self) -> float | None:
        """Return when a broker last wrote an offset, by its clock in seconds; None where that is not known."""
        ...


class Ages(Protocol):
    """Tells how old the records are that wait."""

    def waiting(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Waiting]:
        """Return the first record at or after each offset, of each partition that answers soon; raises nothing."""
        ...


class AgesUnknown:
    """What tells no age."""

    def waiting(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Waiting]:  # noqa: ARG002  # the protocol's
        """Return nothing."""
        return {}


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
        ages: tells how old waiting records are.
        copies: the group's offsets on the source's cluster, where the sink has its own and offsets are kept elsewhere.
        pauses: whether a person has paused the service.
        clusters: what a preflight asks: the cluster of the source and that of the sink, often one; none in tests.
    """

    topics: Topics
    destinations: Topics
    group: Group
    fence: Fence
    offsets: OffsetStore
    mirrors: Mirrors = field(default_factory=Mirrors)
    placeholders: Placeholders | None = None
    ages: Ages = field(default_factory=AgesUnknown)
    copies: OffsetStore | None = None
    pauses: Pauses = field(default_factory=NeverPaused)
    clusters: tuple[Cluster, Cluster] | None = None


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

    def warm_up(self) -> None:
        """Have workers ready, so that the first round begins at once."""
        ...

    def submit(self, assignments: Sequence[Assignment]) -> RunningRound:
        """Start a round."""
        ...

    def stop(self) -> None:
        """Release what it holds."""
        ...
