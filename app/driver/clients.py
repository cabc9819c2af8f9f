"""The driver's interface to Kafka and Spark: protocols that the real clients and the tests' fakes implement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.cures import KafkaTools
from app.driver.pause import PauseMark
from app.errors import NotUsable
from app.facts import BrokerFacts, TopicFacts
from app.model import Assignment, Destination, FirstWaiting, LastRead, Partition, Receipt, Topic, Watermarks
from app.offsets.contract import OffsetStore, TransactionalOffsetStore
from app.offsets.mirrors import Mirrors
from app.runtime import REAL, Timings


class Topics(Protocol):
    """Queries about topics."""

    def source_topics(self, names: Collection[str], pattern: str | None, known: Collection[str]) -> Mapping[str, Topic]:
        """
        Return the topics by name, or those by pattern that we may read.

        Raises TopicMissing if one is missing that is not in `known`.
        """

    def matching(self, pattern: str) -> Sequence[str]:
        """Return the topics that a pattern means, whether or not we may read them."""

    def destination(self, name: str) -> Destination:
        """Return a topic that Winnow writes to; raise TopicMissing if it does not exist."""

    def retention(self, name: str) -> float | None:
        """Return for how many seconds a topic keeps its records; None if unlimited, or if we may not read it."""

    def cleanup_policy(self, name: str) -> str:
        """Return `delete`, `compact` or both; empty if we may not read it."""

    def min_in_sync(self, name: str) -> int:
        """Return how many in-sync replicas a partition needs to accept records; 1 if we may not read it."""

    def watermarks(self, partitions: Iterable[Partition]) -> Mapping[Partition, Watermarks]:
        """Return the watermarks of each partition that responds; raise Unreachable if none does."""

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> Mapping[Partition, int | None]:
        """Return the first offset at or after a time, None if there is none yet; otherwise as `watermarks`."""


class Group(Protocol):
    """Queries about the consumer group."""

    def refuse_foreign_members(self) -> None:
        """Raise ForeignMember if the group has other members."""

    def offset_retention(self) -> float | None:
        """Return for how many seconds brokers keep an idle group's offsets; None without the right to ask."""


class Fence(Protocol):
    """Ends tasks by fencing their producers."""

    def refuse_short_transactions(self) -> None:
        """Raise NotUsable if the brokers' longest transaction timeout is shorter than ours. Read-only."""

    def refuse_forbidden_ids(self) -> None:
        """Raise NotAllowed without the right to use the group's transactional ids. Read-only."""

    def fence(self, partitions: Iterable[Partition]) -> Collection[Partition]:
        """Fence the owners of these partitions; return those reached: each transactional id has its coordinator."""

    def renew(self, partitions: Iterable[Partition], offsets: TransactionalOffsetStore) -> Collection[Partition]:
        """Fence as above and commit the offsets again, unless a later owner fences us first; return those reached."""


class InspectedCluster(Protocol):
    """What the preflight asks a cluster; see `app.driver.preflight`. Read-only."""

    tools: KafkaTools
    """The commands of Kafka's own tools for this cluster, used in cures."""

    def id(self) -> str:
        """Return the cluster id; empty if the cluster has none."""

    def size(self) -> int:
        """Return the number of brokers."""

    def brokers(self) -> BrokerFacts:
        """Return the versions and settings of the brokers."""

    def topics(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        """Return the facts of each topic that exists."""

    def group_rights(self, group: str) -> frozenset[str] | None:
        """Return our rights on a group, such as `Read`; None if the broker does not report them."""

    def newest_commit(self) -> float | None:
        """Return when a broker last wrote an offset, in seconds by the broker's clock; None if unknown."""


class Ages(Protocol):
    """Tells how long records have been waiting."""

    def waiting(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, FirstWaiting]:
        """Return the first record at or after each offset, for partitions that respond soon. Never raises."""


FindCut = Callable[[Partition, LastRead], int | None]
"""Returns where a log was truncated before the end of the last record read; None if nobody can tell."""


class Placeholders(Protocol):
    """Creates the topics that hold the source's offsets on the sink's own cluster; see `app.kafka.companions`."""

    def make_room(self, partitions: Iterable[Partition]) -> Mapping[Partition, NotUsable]:
        """Create what the offsets of these partitions still need; return why Kafka refuses it for some of them."""

    def lacking(self, partitions: Iterable[Partition]) -> Mapping[str, int]:
        """Return the topics that `make_room` would create or grow, and the number of partitions each needs."""


@dataclass(frozen=True, slots=True)
class Clients:
    """
    The driver's clients, except Spark.

    Args:
        topics: the source topics.
        destinations: the sink and dead-letter topics, on the sink's cluster.
        ages: None if no page shows them.
        placeholders: None if source and sink share a cluster.
        copies: the group's offsets in Kafka on the source's cluster, if the main store is another; else None.
        clusters: the clusters of source and sink for the preflight, often the same; None in tests.
        timings: how long to look for what they do not announce, such as a service that works.
    """

    topics: Topics
    destinations: Topics
    group: Group
    fence: Fence
    offsets: OffsetStore
    pauses: PauseMark
    ages: Ages | None
    find_cut: FindCut
    mirrors: Mirrors = field(default_factory=Mirrors)
    placeholders: Placeholders | None = None
    copies: OffsetStore | None = None
    clusters: tuple[InspectedCluster, InspectedCluster] | None = None
    timings: Timings = REAL.timings

    def placeholders_for(self, store: OffsetStore) -> Placeholders | None:
        """Return what a store needs on the sink's cluster; None if its offsets are not in a group of Kafka."""
        return self.placeholders if store.transactional else None


class RunningRound(Protocol):
    """A running round; see `app.spark.job`."""

    @property
    def lost_tasks(self) -> int:
        """How many task attempts have failed (a killed worker, a lost executor)."""

    @property
    def done_tasks(self) -> int:
        """How many tasks have reported."""

    @property
    def starved(self) -> bool:
        """Whether a task has no slot to run in."""

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the round; return whether it has ended."""

    def cancel(self) -> None:
        """Kill the tasks; their uncommitted work is repeated."""

    def receipts(self) -> Sequence[Receipt]:
        """Return the tasks' receipts; raise SparkFailed if the round was cancelled or lost."""


class Rounds(Protocol):
    """Runs rounds: Spark, or a fake in tests. Raises SparkFailed if Spark has ended."""

    @property
    def slots(self) -> int:
        """How many tasks can run at once now; executors come and go."""

    def warm_up(self) -> None:
        """Start the workers, so that the first round begins at once."""

    def submit(self, assignments: Sequence[Assignment]) -> RunningRound:
        """Start a round and return at once."""

    def stop(self) -> None:
        """Release all resources."""
