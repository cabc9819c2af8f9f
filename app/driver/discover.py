"""Discovers the source partitions before a round: which there are, where each stands, where each starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.config import Config, FromTimestamp
from app.driver.clients import Clients
from app.driver.destinations import Destinations
from app.driver.starting_offsets import PartitionOffsets, StartPolicy, decide, skipped
from app.errors import Blocked, Leaderless, NotUsable, PartitionError, TopicGone, Undeliverable, Unreachable
from app.model import Destination, OffsetRange, Outcome, Partition, Receipt, Topic
from app.offsets.metadata import OffsetMetadata
from app.runtime import REAL, Runtime

# A partition that a task found blocked is left out of the next plans for so long, unless its offset is moved: a plan
# that it fails again costs all partitions a rebalance.
BLOCKED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Workload:
    """
    What a round can work on.

    Args:
        offsets: the offsets of every source partition that answers.
        ranges: what is to be read of each partition that can be worked on.
        blocked: the error of each partition that waits for a person.
        skipped: the offsets that `out.of.range` skips, first and after the last.
        undeliverable: the error of each partition whose output nobody takes now.
    """

    offsets: Mapping[Partition, PartitionOffsets]
    ranges: Mapping[Partition, OffsetRange]
    blocked: Mapping[Partition, Blocked] = field(default_factory=dict)
    skipped: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    undeliverable: Mapping[Partition, Undeliverable] = field(default_factory=dict)

    def lag(self, partition: Partition) -> int:
        """Return how many offsets of a partition wait to be read."""
        return self.offsets[partition].lag(self.ranges[partition].start, self.ranges[partition].end)


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """
    The source partitions at one moment.

    Args:
        offsets: the offsets of each partition; while tasks run, the last known ones of those that cannot be read now.
        unreadable: the partitions whose offsets cannot be read now: they have no leader, or it does not answer.
        undeliverable: the error of each partition whose output nobody takes now.
    """

    offsets: Mapping[Partition, PartitionOffsets]
    unreadable: frozenset[Partition] = frozenset()
    undeliverable: Mapping[Partition, Undeliverable] = field(default_factory=dict)

    def trouble(self, partition: Partition) -> PartitionError | None:
        """Return why no task can go on with a partition now; None where nothing is known."""
        return Leaderless(partition) if partition in self.unreadable else self.undeliverable.get(partition)


class Discovery:
    """Discovers partitions, and remembers them: an offset that vanishes and a partition that appears are news."""

    def __init__(self, config: Config, clients: Clients, runtime: Runtime = REAL) -> None:
        self._clock = runtime.monotonic
        self._source = config.source
        starting = config.starting_offsets
        timestamp = starting.timestamp if isinstance(starting, FromTimestamp) else None
        self._policy = StartPolicy(
            "timestamp" if isinstance(starting, FromTimestamp) else starting, config.out_of_range
        )
        self._timestamp = timestamp
        self._clients = clients
        self._destinations = Destinations(config, clients.destinations)
        self._had_offset_in: dict[Partition, str] = {}
        """The id of the topic in which a committed offset was seen last."""
        self._blocked: dict[Partition, tuple[Blocked, float]] = {}
        """What tasks found blocked, and until when that is believed."""
        self._known: set[Partition] | None = None
        self._last_seen: Mapping[Partition, PartitionOffsets] = {}

    def discover(self) -> Workload:
        """
        Look at everything, and decide where each partition starts.

        Raises:
            Unreachable: Kafka does not answer now.
            TopicMissing, ForeignMember, NotAllowed: a person must act.
        """
        found = self._source_offsets(stable=True)
        offsets, existing = found.offsets, {*found.offsets, *found.unreadable}
        starts = self._starts_by_time(offsets)
        ranges: dict[Partition, OffsetRange] = {}
        blocked: dict[Partition, Blocked] = {each: Leaderless(each) for each in sorted(found.unreadable)}
        blocked.update(self._gone(existing))
        for partition, at in offsets.items():
            try:
                ranges[partition] = self._decide(at, starts)
            except Blocked as error:
                blocked[partition] = error
        self._remember(offsets)
        self._known = existing if self._known is None else self._known | offsets.keys()
        lost = {partition: skipped(offsets[partition], each) for partition, each in ranges.items()}
        skips = {partition: span for partition, span in lost.items() if span}
        return Workload(offsets, ranges, blocked, skips, self._destinations.undeliverable(ranges))

    def refresh(self) -> SourceOffsets:
        """Return the offsets while tasks commit, and decide nothing; raises what `discover` does."""
        found = self._source_offsets(stable=False)
        last_known = {each: self._last_seen[each] for each in found.unreadable & self._last_seen.keys()}
        offsets = {**last_known, **found.offsets}
        self._remember(offsets)
        return SourceOffsets(offsets, found.unreadable, self._destinations.undeliverable(offsets))

    def reported(self, receipts: Iterable[Receipt]) -> None:
        """Remember what tasks found blocked, and what they have committed: that may vanish before it is seen here."""
        for receipt in receipts:
            if receipt.outcome is Outcome.BLOCKED:
                self._blocked[receipt.partition] = blocked_by(receipt), self._clock() + BLOCKED_SECONDS
            metadata = OffsetMetadata.parse(receipt.metadata)
            if metadata.is_ours:
                self._had_offset_in[receipt.partition] = metadata.topic_id

    def _remember(self, offsets: Mapping[Partition, PartitionOffsets]) -> None:
        self._last_seen = offsets
        for partition, at in offsets.items():
            if at.committed is not None:
                topic_id = OffsetMetadata.parse(at.committed.metadata).topic_id
                self._had_offset_in[partition] = topic_id or at.topic_id

    def _source_offsets(self, *, stable: bool) -> SourceOffsets:
        self._clients.group.refuse_foreign_members()
        topics = self._topics()
        partitions = [Partition(topic.name, n) for topic in topics.values() for n in range(topic.partitions)]
        led = [each for each in partitions if each.number not in topics[each.topic].leaderless]
        if partitions and not led:
            raise Unreachable("no source partition has a leader", "bring the brokers back; Winnow goes on by itself")
        # Committed offsets first: an offset that is committed in between must not look as if it lay after the end, and
        # the end never goes back. The log start, too, may pass an offset that moves in between. A discovery, which
        # decides by it, runs while no task commits; a refresh believes it only of an offset that has not moved since
        # the last one (`app.driver.rebalance`).
        committed = self._clients.offsets.load(led, stable=stable)
        watermarks = self._clients.topics.watermarks(led)
        offsets = {
            each: PartitionOffsets(each, topics[each.topic].id, marks, committed.get(each))
            for each, marks in watermarks.items()
        }
        return SourceOffsets(offsets, frozenset(partitions) - offsets.keys())

    def _topics(self) -> Mapping[str, Topic]:
        known = {partition.topic for partition in self._known or ()}
        return self._clients.topics.source_topics(self._source.topics, self._source.topics_pattern, known)

    def _gone(self, existing: set[Partition]) -> dict[Partition, Blocked]:
        """Return the error of each known partition that is gone; one that only a pattern found may come and go."""
        named = {partition for partition in self._known or () if partition.topic in self._source.topics}
        topics = {partition.topic for partition in existing}
        return {
            partition: _gone(partition, topic_exists=partition.topic in topics)
            for partition in sorted(named - existing)
        }

    def _starts_by_time(self, offsets: Mapping[Partition, PartitionOffsets]) -> Mapping[Partition, int | None]:
        if self._timestamp is None:
            return {}
        without = [partition for partition, at in offsets.items() if at.committed is None]
        return self._clients.topics.offsets_at(without, self._timestamp)

    def _decide(self, at: PartitionOffsets, starts: Mapping[Partition, int | None]) -> OffsetRange:
        self._raise_what_a_task_found(at)
        if self._timestamp is not None and at.committed is None and at.partition not in starts:
            raise Leaderless(at.partition)
        return decide(
            at,
            self._policy,
            first_seen=starts.get(at.partition),
            had_offset_in=self._had_offset_in.get(at.partition),
            joined_later=self._known is not None and at.partition not in self._known,
        )

    def _raise_what_a_task_found(self, at: PartitionOffsets) -> None:
        """Raise what blocked the partition, while its offset stands where it did and the finding is fresh."""
        if at.partition not in self._blocked:
            return
        error, until = self._blocked[at.partition]
        if at.next_offset(0) == error.offset and self._clock() < until:
            raise error
        del self._blocked[at.partition]


def refuse_compacted(dead_letters: Destination) -> None:
    """
    Require that the dead-letter topic keeps every record.

    Raises:
        NotUsable: it keeps only the last record of each key, and takes none without a key.
    """
    if dead_letters.compacted:
        msg = f"the dead-letter topic {dead_letters.topic!r} is compacted: it refuses records without key, and forgets"
        raise NotUsable(msg, "set its cleanup.policy to delete")


def blocked_by(receipt: Receipt) -> Blocked:
    """Return the error that a task was blocked by."""
    return Blocked(receipt.partition, receipt.error, receipt.end, receipt.cure)


def _gone(partition: Partition, *, topic_exists: bool) -> TopicGone:
    if topic_exists:
        return TopicGone(
            partition, "its topic was created again with fewer partitions", cure="restart Winnow to forget it"
        )
    return TopicGone(
        partition, "its topic does not exist any more", cure="create it again, or take it out of source.topics"
    )
