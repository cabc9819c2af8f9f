"""How far the group is behind in each partition, for `winnow lag`. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from app.config import Config
from app.driver.clients import Clients
from app.driver.destinations import Destinations
from app.driver.newcomers import Newcomers
from app.driver.starting_offsets import PartitionOffsets, StartPolicy
from app.errors import PartitionError, TopicMissing, Undeliverable, WinnowError
from app.model import NOBODY, CommittedOffset, Partition, Pause, Watermarks, partitions_of
from app.offsets.contract import is_local
from app.offsets.metadata import NOTHING, Counts, OffsetMetadata

NO_ANSWER = "the partition has no leader, or its broker does not answer"


class FirstRecords(Protocol):
    """Reads the first record from an offset on."""

    def times(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        """
        Return the timestamp of the first committed record at or after each offset, in milliseconds since the epoch.

        None means that no record waits: control records and aborted ones take offsets, too. A partition is left out if
        it does not answer in time or its record has no timestamp.
        """


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far the group is behind in one partition."""

    partition: Partition
    committed: CommittedOffset | None
    watermarks: Watermarks | None
    """None if its broker does not answer."""
    seconds: float | None = None
    """The age of the first unread record; 0 if none waits, None if unknown."""
    topic_id: str = ""
    trouble: PartitionError | None = None
    """Why no task can work on it; None if nothing is known."""

    @property
    def offset(self) -> int | None:
        return None if self.committed is None or self.committed.corrupt else self.committed.offset

    @property
    def lag(self) -> int | None:
        """How many offsets wait below the last stable offset, which is all that Winnow can read now."""
        return None if self.watermarks is None else self._up_to(self.watermarks.last_stable)

    @property
    def lag_to_end(self) -> int | None:
        """How many offsets wait below the high watermark, which kafka-consumer-groups calls the lag."""
        return None if self.watermarks is None else self._up_to(self.watermarks.high_watermark)

    def _up_to(self, end: int) -> int | None:
        return None if self.next_offset is None else max(0, end - self.next_offset)

    @property
    def next_offset(self) -> int | None:
        """The first unread offset: the committed one, if it is of this log."""
        return self.offset if self._elsewhere is None else self._elsewhere

    @property
    def problem(self) -> str:
        if self.watermarks is None:
            return NO_ANSWER
        if self.trouble is not None:
            return WinnowError.__str__(self.trouble)  # the row already names the partition
        if self.offset is None:
            return ""
        if (lost := self.watermarks.log_start - self.offset) > 0:
            return f"{lost} offsets were deleted before they were read"
        if self.offset > self.watermarks.high_watermark:
            return f"the partition ends at {self.watermarks.high_watermark}, below the committed offset"
        return ""

    @property
    def is_of_another_log(self) -> bool:
        """Whether the offset says nothing about this log: it was truncated, or its topic was deleted and recreated."""
        return self._elsewhere is not None

    @property
    def _elsewhere(self) -> int | None:
        if self.watermarks is None:
            return None
        return PartitionOffsets(self.partition, self.topic_id, self.watermarks, self.committed).elsewhere

    @property
    def metadata(self) -> OffsetMetadata:
        """What the service stored with the offset; empty if an operator set the offset."""
        return OffsetMetadata.of(self.committed)

    @property
    def begun(self) -> int:
        """Where the group's work began, or somebody has set its offset since: an offset that no run has committed."""
        return self.metadata.since if self.metadata.is_ours else self.offset or 0

    def stored_as_json(self) -> dict[str, Any]:
        metadata = self.metadata
        return {
            **self.partition.as_json(),
            "current_offset": self.offset,
            "since": metadata.since if metadata.is_ours else None,
            "in": metadata.counts.records,
            "out": metadata.counts.out,
            "dead_letters": dict(metadata.counts.dead),
            "filtered": dict(metadata.counts.filtered),
            "committed_by": None if metadata.owner == NOBODY else metadata.owner._asdict(),
            "metadata": self.committed.metadata if self.committed else None,
            "problem": self.problem or None,
        }

    def as_json(self) -> dict[str, Any]:
        log_start, last_stable, high_watermark = self.watermarks or (None, None, None)
        return {
            **self.partition.as_json(),
            "current_offset": self.offset,
            "log_start_offset": log_start,
            "last_stable_offset": last_stable,
            "log_end_offset": high_watermark,
            "lag": self.lag,
            "lag_to_end": self.lag_to_end,
            "lag_seconds": self.seconds,
            "problem": self.problem or None,
        }


def offsets_of(config: Config, clients: Clients) -> list[PartitionLag]:
    """Return the offsets of every source partition, in order, without the age of waiting records."""
    source, policy = config.source, StartPolicy.of(config, keeps=not is_local(clients.offsets))
    topics = clients.topics.source_topics(source.topics, source.topics_pattern, ())
    partitions = sorted(partitions_of(topics.values()))
    led = [each for each in partitions if each.number not in topics[each.topic].leaderless]
    # Committed offsets before the ends: ends only grow, so no offset exceeds its end.
    found = clients.offsets.load(partitions, stable=False)
    committed = {each: found.get(each) for each in partitions}
    watermarks = clients.topics.watermarks(led)
    newcomers = Newcomers(config, clients.copies)
    newcomers.record(committed, topics)
    blocked = {
        each: newcomers.judge(PartitionOffsets(each, topics[each.topic].id, marks, committed[each]), policy)
        for each, marks in watermarks.items()
    }
    return [
        PartitionLag(each, at, watermarks.get(each), topic_id=topics[each.topic].id, trouble=blocked.get(each))
        for each, at in committed.items()
    ]


def measure(config: Config, clients: Clients, first_records: FirstRecords, now: float) -> list[PartitionLag]:
    """Return the lag of every source partition, in order; `now` is in seconds since the epoch."""
    found = positions(config, clients)
    times = first_records.times(unread(found))
    seconds = {each: None if milliseconds is None else milliseconds / 1000 for each, milliseconds in times.items()}
    return with_ages(found, seconds, now)


def unread(found: Iterable[PartitionLag]) -> dict[Partition, int]:
    """Return the next offset of each partition in which records wait."""
    return {at.partition: at.next_offset for at in found if at.lag and at.next_offset is not None}


def positions(config: Config, clients: Clients) -> list[PartitionLag]:
    """Return the same without the age of waiting records, which alone takes long."""
    found = offsets_of(config, clients)
    partitions = [each.partition for each in found]
    try:
        undeliverable = Destinations(config, clients.destinations).undeliverable(partitions)
    except TopicMissing as error:
        undeliverable = {each: Undeliverable(each, error.cause, cure=error.cure) for each in partitions}
    return [replace(each, trouble=each.trouble or undeliverable.get(each.partition)) for each in found]


def with_ages(found: Iterable[PartitionLag], since: Mapping[Partition, float | None], now: float) -> list[PartitionLag]:
    """Return the partitions with the age of their first waiting record; `since` is None where only offsets wait."""
    ages = {each: 0.0 if first is None else max(0.0, round(now - first, 3)) for each, first in since.items()}
    return [
        at if at.lag is None else replace(at, seconds=ages.get(at.partition, at.seconds) if at.lag else 0.0)
        for at in found
    ]


def severity(at: PartitionLag) -> tuple[bool, int, Partition]:
    """Return what sorts the worst first: those with a problem, then the largest lag."""
    return not at.problem, -(at.lag or 0), at.partition


def notes(found: Sequence[PartitionLag], pause: Pause | None = None) -> str:
    """Return what a footer adds to the totals: which partitions they leave out, and a pause; empty if nothing."""
    without = {
        "no offset": sum(each.offset is None for each in found),
        "unknown lag": sum(each.offset is not None and each.lag is None for each in found),
        "unknown age": sum(bool(each.lag) and each.seconds is None for each in found),
    }
    left_out = (f"; {what}: {count} of {len(found)} partitions" for what, count in without.items() if count)
    return "".join(left_out) + (f"; {pause}" if pause else "")


def counts_of(found: Iterable[PartitionLag]) -> Counts:
    """Return the counts of all partitions together, as tasks have committed them."""
    return sum((each.metadata.counts for each in found), NOTHING)


def summed(found: Sequence[PartitionLag]) -> dict[str, Any]:
    return {
        "lag": sum(each.lag or 0 for each in found),
        "max_lag": max((each.lag or 0 for each in found), default=0),
        "max_lag_seconds": max((each.seconds or 0.0 for each in found), default=0.0),
    }
