"""Discovers the source partitions before a round: which there are, where each stands, where each starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.config import Config, FromTimestamp
from app.driver.clients import Clients
from app.driver.starting_offsets import PartitionOffsets, StartPolicy, decide, skipped
from app.errors import Blocked, TopicGone
from app.model import OffsetRange, Partition, Receipt, Topic
from app.offsets.metadata import OffsetMetadata


@dataclass(frozen=True, slots=True)
class Workload:
    """
    What a round can work on.

    Args:
        offsets: the offsets of every source partition that exists.
        ranges: what is to be read of each partition that can be worked on.
        blocked: the error of each partition that waits for a person.
        skipped: the offsets that `out.of.range` skips, first and after the last.
    """

    offsets: Mapping[Partition, PartitionOffsets]
    ranges: Mapping[Partition, OffsetRange]
    blocked: Mapping[Partition, Blocked] = field(default_factory=dict)
    skipped: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)

    def lag(self, partition: Partition) -> int:
        """Return how many offsets of a partition wait to be read."""
        return self.offsets[partition].lag(self.ranges[partition].start, self.ranges[partition].end)


class Discovery:
    """Discovers partitions, and remembers them: an offset that vanishes and a partition that appears are news."""

    def __init__(self, config: Config, clients: Clients) -> None:
        self._source = config.source
        starting = config.starting_offsets
        timestamp = starting.timestamp if isinstance(starting, FromTimestamp) else None
        self._policy = StartPolicy(
            "timestamp" if isinstance(starting, FromTimestamp) else starting, config.out_of_range
        )
        self._timestamp = timestamp
        self._clients = clients
        self._had_offset_in: dict[Partition, str] = {}
        """The id of the topic in which a committed offset was seen last."""
        self._known: set[Partition] | None = None

    def discover(self) -> Workload:
        """
        Look at everything, and decide where each partition starts.

        Raises:
            Unreachable: Kafka does not answer now.
            TopicMissing, ForeignMember, NotAllowed: a person must act.
        """
        offsets = self._offsets(stable=True)
        starts = self._starts_by_time(offsets)
        ranges: dict[Partition, OffsetRange] = {}
        blocked: dict[Partition, Blocked] = self._gone(offsets)
        for partition, at in offsets.items():
            try:
                ranges[partition] = self._decide(at, starts.get(partition))
            except Blocked as error:
                blocked[partition] = error
        self._remember(offsets)
        self._known = (self._known or set()) | offsets.keys()
        lost = {partition: skipped(offsets[partition], each) for partition, each in ranges.items()}
        return Workload(offsets, ranges, blocked, {partition: span for partition, span in lost.items() if span})

    def refresh(self) -> dict[Partition, PartitionOffsets]:
        """Return the offsets while tasks commit, and decide nothing; raises what `discover` does."""
        offsets = self._offsets(stable=False)
        self._remember(offsets)
        return offsets

    def committed(self, receipts: Iterable[Receipt]) -> None:
        """Remember that tasks have committed offsets, which may vanish before they are seen here."""
        for receipt in receipts:
            metadata = OffsetMetadata.parse(receipt.metadata)
            if metadata.is_ours:
                self._had_offset_in[receipt.partition] = metadata.topic_id

    def _remember(self, offsets: Mapping[Partition, PartitionOffsets]) -> None:
        for partition, at in offsets.items():
            if at.committed is not None:
                topic_id = OffsetMetadata.parse(at.committed.metadata).topic_id
                self._had_offset_in[partition] = topic_id or at.topic_id

    def _offsets(self, *, stable: bool) -> dict[Partition, PartitionOffsets]:
        self._clients.group.refuse_foreign_members()
        topics = self._topics()
        partitions = [Partition(topic.name, n) for topic in topics.values() for n in range(topic.partitions)]
        # Committed offsets first: an offset that is committed in between must not look as if it lay after the end, and
        # the end never goes back. The log start, too, may pass an offset that moves in between. A discovery, which
        # decides by it, runs while no task commits; a refresh believes it only of an offset that has not moved since
        # the last one (`app.driver.rebalance`).
        committed = self._clients.offsets.load(partitions, stable=stable)
        watermarks = self._clients.topics.watermarks(partitions)
        return {
            each: PartitionOffsets(each, topics[each.topic].id, watermarks[each], committed.get(each))
            for each in partitions
        }

    def _topics(self) -> Mapping[str, Topic]:
        known = {partition.topic for partition in self._known or ()}
        return self._clients.topics.source_topics(self._source.topics, self._source.topics_pattern, known)

    def _gone(self, offsets: Mapping[Partition, PartitionOffsets]) -> dict[Partition, Blocked]:
        """Return the error of each known partition that is gone; one that only a pattern found may come and go."""
        named = {partition for partition in self._known or () if partition.topic in self._source.topics}
        topics = {partition.topic for partition in offsets}
        return {
            partition: _gone(partition, topic_exists=partition.topic in topics)
            for partition in sorted(named - offsets.keys())
        }

    def _starts_by_time(self, offsets: Mapping[Partition, PartitionOffsets]) -> Mapping[Partition, int | None]:
        if self._timestamp is None:
            return {}
        without = [partition for partition, at in offsets.items() if at.committed is None]
        return self._clients.topics.offsets_at(without, self._timestamp)

    def _decide(self, at: PartitionOffsets, first_seen: int | None) -> OffsetRange:
        return decide(
            at,
            self._policy,
            first_seen=first_seen,
            had_offset_in=self._had_offset_in.get(at.partition),
            joined_later=self._known is not None and at.partition not in self._known,
        )


def _gone(partition: Partition, *, topic_exists: bool) -> TopicGone:
    if topic_exists:
        return TopicGone(
            partition, "its topic was created again with fewer partitions", cure="restart Winnow to forget it"
        )
    return TopicGone(
        partition, "its topic does not exist any more", cure="create it again, or take it out of source.topics"
    )
