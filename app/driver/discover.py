"""Looks at the source topics before a round: which partitions there are, where each stands, where each starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.config import Config, FromTimestamp
from app.driver.observe import Observer
from app.driver.starting_offsets import Policy, Position, decide, lost_range
from app.errors import Blocked, TopicGone
from app.kafka.admin import KafkaAdmin
from app.model import OffsetRange, Partition


@dataclass(frozen=True, slots=True)
class Survey:
    """What a round can work on."""

    ranges: Mapping[Partition, OffsetRange]
    positions: Mapping[Partition, Position]
    blocked: Mapping[Partition, Blocked]

    def lag(self, offset_range: OffsetRange) -> int:
        """Count the offsets that are still to be read, up to the last stable one."""
        return max(0, self.positions[offset_range.partition].stable - offset_range.start)

    @property
    def total_lag(self) -> int:
        """Count them for all partitions that can be worked on."""
        return sum(map(self.lag, self.ranges.values()))


class Surveyor:
    """Surveys, and remembers what it has seen: an offset that vanishes and a partition that appears are news."""

    def __init__(self, config: Config, kafka: KafkaAdmin, observer: Observer) -> None:
        self._source = config.source
        starting = config.starting_offsets
        self._policy = Policy("timestamp" if isinstance(starting, FromTimestamp) else starting, config.out_of_range)
        self._timestamp = starting.timestamp if isinstance(starting, FromTimestamp) else None
        self._kafka = kafka
        self._observer = observer
        self._had_offset: set[Partition] = set()
        self._known: set[Partition] | None = None

    def survey(self) -> Survey:
        """
        Look at everything.

        Raises:
            Unreachable: Kafka does not answer now.
            TopicMissing, ForeignMember, NotAllowed: a person must act.
        """
        positions = self._positions(settled=True)
        starts = self._starts_by_time(positions)
        ranges: dict[Partition, OffsetRange] = {}
        topics = {partition.topic for partition in positions}
        blocked: dict[Partition, Blocked] = {
            partition: _gone(partition, topic_is_there=partition.topic in topics)
            for partition in sorted(self._missing(positions))
        }
        for partition, at in positions.items():
            try:
                ranges[partition] = self._decide(at, starts.get(partition))
            except Blocked as error:
                blocked[partition] = error
        self._observer.blocked(blocked)
        self._had_offset |= {partition for partition, at in positions.items() if at.committed}
        self._known = (self._known or set()) | positions.keys()
        return Survey(ranges, positions, blocked)

    def glance(self) -> dict[Partition, Position]:
        """Look at where everything stands while tasks commit, and decide nothing; raises what `survey` does."""
        return self._positions(settled=False)

    def _positions(self, *, settled: bool) -> dict[Partition, Position]:
        self._kafka.refuse_foreign_members()
        known = {partition.topic for partition in self._known or ()}
        topics = self._kafka.topics(self._source.topics, self._source.topics_pattern, known)
        partitions = [Partition(topic.name, n) for topic in topics.values() for n in range(topic.partitions)]
        watermarks, committed = self._kafka.watermarks(partitions), self._kafka.committed(partitions, settled=settled)
        return {
            partition: Position(partition, topics[partition.topic].id, *watermarks[partition], committed.get(partition))
            for partition in partitions
        }

    def _missing(self, positions: Mapping[Partition, Position]) -> set[Partition]:
        """Find the partitions whose topic is gone; one that only a pattern has found may come and go."""
        named = {partition for partition in self._known or () if partition.topic in self._source.topics}
        return named - positions.keys()

    def _starts_by_time(self, positions: Mapping[Partition, Position]) -> Mapping[Partition, int | None]:
        if self._timestamp is None:
            return {}
        without = [partition for partition, at in positions.items() if at.committed is None]
        return self._kafka.offsets_at(without, self._timestamp)

    def _decide(self, at: Position, first_seen: int | None) -> OffsetRange:
        offset_range = decide(
            at,
            self._policy,
            first_seen=first_seen,
            had_offset=at.partition in self._had_offset,
            joined_later=self._known is not None and at.partition not in self._known,
        )
        if skipped := lost_range(at, offset_range):
            self._observer.skipped(at.partition, *skipped)
        return offset_range


def _gone(partition: Partition, *, topic_is_there: bool) -> TopicGone:
    if topic_is_there:
        return TopicGone(partition, "its topic was created again with fewer partitions: restart Winnow to forget it")
    return TopicGone(partition, "its topic does not exist any more: create it again, or take it out of source.topics")
