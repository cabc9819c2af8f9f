"""Discovers the source partitions before a round: which there are, where each stands, where each starts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from app.config import Config, FromDuration, FromTimestamp
from app.driver.clients import Clients
from app.driver.committed import committed_offsets
from app.driver.destinations import Destinations
from app.driver.newcomers import Newcomers
from app.driver.owners import Owners
from app.driver.starting_offsets import (
    PartitionOffsets,
    StartPolicy,
    cut_of,
    decide,
    rewound,
    skipped,
)
from app.errors import (
    Blocked,
    Leaderless,
    PartitionError,
    TopicGone,
    Truncated,
    Undeliverable,
    Unreachable,
)
from app.model import CommittedOffset, OffsetRange, Outcome, Owner, Partition, Receipt, Topic, Watermarks, partitions_of
from app.offsets.contract import is_local
from app.offsets.metadata import OffsetMetadata, owner_of
from app.offsets.mirrors import MirrorStatus
from app.runtime import REAL, Runtime

# A partition that a task found blocked is left out of the next plans for so long, unless its offset is moved: a plan
# that it fails again costs all partitions a rebalance.
BLOCKED_SECONDS = 60.0

Committed = Mapping[Partition, CommittedOffset | None]
"""The committed offset of each partition that exists, also of one that cannot be read; None where there is none."""


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
        rewound: the offsets that `out.of.range` reads again, first and after the last.
        fenced: the partitions that tasks lost to somebody else since the last discovery, and who owns them now; None
            where the last commit is still our own.
        rival: another run of this generation that still works for the group; an earlier one, unless this one stands by.
        mirrors: the mirrors of the offsets.
        committed: the committed offset of each source partition, also of those that do not answer.
    """

    offsets: Mapping[Partition, PartitionOffsets]
    ranges: Mapping[Partition, OffsetRange]
    blocked: Mapping[Partition, Blocked] = field(default_factory=dict)
    skipped: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    undeliverable: Mapping[Partition, Undeliverable] = field(default_factory=dict)
    rewound: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    fenced: Mapping[Partition, Owner | None] = field(default_factory=dict)
    rival: Owner | None = None
    mirrors: tuple[MirrorStatus, ...] = ()
    committed: Committed = field(default_factory=dict)

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
        rival: another run of this generation that still works for the group; an earlier one, unless this one stands by.
        mirrors: the mirrors of the offsets.
        committed: the committed offset of each source partition, also of those that do not answer.
    """

    offsets: Mapping[Partition, PartitionOffsets]
    unreadable: frozenset[Partition] = frozenset()
    undeliverable: Mapping[Partition, Undeliverable] = field(default_factory=dict)
    rival: Owner | None = None
    mirrors: tuple[MirrorStatus, ...] = ()
    committed: Committed = field(default_factory=dict)

    def trouble(self, partition: Partition) -> PartitionError | None:
        """Return why no task can go on with a partition now; None where nothing is known."""
        return Leaderless(partition) if partition in self.unreadable else self.undeliverable.get(partition)


class Discovery:
    """
    Discovers partitions, and remembers them: an offset that vanishes and a partition that appears are news.

    Args:
        config: the configuration.
        clients: Kafka, as the driver sees it.
        runtime: the clocks, and the name of this machine.
    """

    def __init__(self, config: Config, clients: Clients, runtime: Runtime = REAL) -> None:
        self._runtime = runtime
        self._source = config.source
        self._starting = config.starting_offsets
        self._policy = StartPolicy.of(config, keeps=not is_local(clients.offsets))
        self._latest: dict[tuple[Partition, str], int] = {}
        """Where `starting.offsets` is latest: the end of each partition, by its topic's id, when it was seen first."""
        self._start_time: int | None = None
        """Where `starting.offsets` is a time: that time in milliseconds, the same for all partitions."""
        self._clients = clients
        self.owner = Owner(int(runtime.wall_clock() * 1000), runtime.host, config.sink.topic, config.generation)
        """This run of the service."""
        self.owners = Owners(self.owner, config.group_id, runtime)
        self.takeover = self.owners.takeover
        self._fenced: set[Partition] = set()
        """Those that tasks lost to somebody else since the last discovery."""
        self._destinations = Destinations(config, clients.destinations)
        self._had_offset_in: dict[Partition, str] = {}
        """The id of the topic in which a committed offset was seen last."""
        self._blocked: dict[Partition, tuple[Blocked, float]] = {}
        """What tasks found blocked, and until when that is believed."""
        self._cuts: dict[Partition, tuple[CommittedOffset, int]] = {}
        """Where a partition ended below its committed offset; true until somebody sets that offset."""
        self._reported_cuts: dict[Partition, tuple[int, int]] = {}
        """The committed offset and the cut of each partition that a task found cut since the last discovery."""
        self._newcomers = Newcomers(config, clients.copies)
        self._last_seen: Mapping[Partition, PartitionOffsets] = {}

    def discover(self, *, stable: bool = True) -> Workload:
        """
        Look at everything, and decide where each partition starts.

        Offsets that are not `stable` will do where tasks read them again: a stable load waits for whoever commits.

        Raises:
            Unreachable: Kafka does not answer now.
            TopicMissing, ForeignMember, ForeignSink, Superseded, NotAllowed: a person must act.
        """
        found = self._source_offsets(stable=stable)
        offsets = found.offsets
        self._take_in_cuts(offsets)
        starts = self._starts(offsets)
        ranges: dict[Partition, OffsetRange] = {}
        blocked: dict[Partition, Blocked] = {each: Leaderless(each) for each in sorted(found.unreadable)}
        blocked.update(self._gone(found.committed.keys()))
        for partition, at in offsets.items():
            try:
                ranges[partition] = self._decide(at, starts)
            except Blocked as error:
                blocked[partition] = error
        self._remember(offsets)
        self._clients.mirrors.put_all(_readable(found.committed))
        lost = {each: skipped(offsets[each], ranges[each], self._cut(offsets[each])) for each in ranges}
        again = {each: rewound(offsets[each], ranges[each]) for each in ranges}
        fenced = self._fenced & offsets.keys() - self.takeover.taken.keys()
        owners = {each: None if (by := owner_of(offsets[each].committed)) == self.owner else by for each in fenced}
        self._fenced.clear()
        return Workload(
            offsets,
            ranges,
            blocked,
            skipped=_only_spans(lost),
            rewound=_only_spans(again),
            fenced=owners,
            rival=self.owners.rival,
            mirrors=self._clients.mirrors.status,
            undeliverable=self._destinations.undeliverable(ranges),
            committed=found.committed,
        )

    def refresh(self) -> SourceOffsets:
        """Return the offsets while tasks commit, and decide nothing; raises what `discover` does."""
        found = self._source_offsets(stable=False)
        last_known = {each: self._last_seen[each] for each in found.unreadable & self._last_seen.keys()}
        offsets = {**last_known, **found.offsets}
        self._remember(offsets)
        self._clients.mirrors.put_all(_readable(found.committed))
        undeliverable = self._destinations.undeliverable(offsets)
        mirrors = self._clients.mirrors.status
        return SourceOffsets(offsets, found.unreadable, undeliverable, self.owners.rival, mirrors, found.committed)

    def reported(self, receipts: Iterable[Receipt], fenced: Collection[Partition] = ()) -> None:
        """
        Remember what tasks found blocked or lost, and what they have committed: that may vanish before it is seen here.

        Args:
            receipts: what the tasks report.
            fenced: the partitions that the driver itself has fenced to end them.
        """
        for receipt in receipts:
            if receipt.outcome is Outcome.FENCED and receipt.partition not in fenced:
                self._fenced.add(receipt.partition)
            if receipt.cut is not None:
                self._reported_cuts[receipt.partition] = receipt.end, receipt.cut
            elif receipt.outcome is Outcome.BLOCKED:
                seconds = math.inf if receipt.tripped else BLOCKED_SECONDS
                self._blocked[receipt.partition] = blocked_by(receipt), self._runtime.monotonic() + seconds
            if is_local(self._clients.offsets) and receipt.metadata:
                self._clients.offsets.reset(receipt.partition, receipt.end, receipt.metadata)
            metadata = OffsetMetadata.parse(receipt.metadata)
            if metadata.is_ours:
                self._had_offset_in[receipt.partition] = metadata.topic_id

    def _remember(self, offsets: Mapping[Partition, PartitionOffsets]) -> None:
        self._last_seen = offsets
        for partition, at in offsets.items():
            if at.committed is not None and (cut := self._cut(at)) is not None:
                self._cuts[partition] = at.committed, cut

    def _take_in_cuts(self, offsets: Mapping[Partition, PartitionOffsets]) -> None:
        """Remember what tasks found, unless somebody has set the offset since."""
        for partition, (offset, cut) in self._reported_cuts.items():
            committed = offsets[partition].committed if partition in offsets else None
            if committed is not None and committed.offset == offset:
                self._cuts[partition] = committed, cut
        self._reported_cuts.clear()

    def _cut(self, at: PartitionOffsets) -> int | None:
        committed, cut = self._cuts.get(at.partition, (None, None))
        return cut_of(at, cut if committed == at.committed else None)

    def _source_offsets(self, *, stable: bool) -> SourceOffsets:
        self._clients.group.refuse_foreign_members()
        topics = self._topics()
        partitions = partitions_of(topics.values())
        led = [each for each in partitions if each.number not in topics[each.topic].leaderless]
        if partitions and not led:
            raise Unreachable("no source partition has a leader", "bring the brokers back; Winnow resumes on its own")
        # Committed offsets first: an offset that is committed in between must not look as if it lay after the end, and
        # the end never goes back. The log start, too, may pass an offset that moves in between. A discovery, which
        # decides by it, runs while no task commits; a refresh believes it only of an offset that has not moved since
        # the last one (`app.driver.rebalance`).
        found = committed_offsets(self._clients.offsets, partitions, stable=stable)
        committed = {each: found.get(each) for each in partitions}
        watermarks = self._clients.topics.watermarks(led)
        if any(_is_outside(committed[each], marks) for each, marks in watermarks.items()):
            topics = {**topics, **self._topics()}  # one that was created again meanwhile has another id
        offsets = {
            each: PartitionOffsets(each, topics[each.topic].id, marks, committed[each])
            for each, marks in watermarks.items()
        }
        self._newcomers.meet(committed, topics)
        self.owners.look(committed)
        self._had_offset_in |= {
            each: OffsetMetadata.parse(at.metadata).topic_id or topics[each.topic].id
            for each, at in committed.items()
            if at is not None
        }
        return SourceOffsets(offsets, frozenset(partitions) - offsets.keys(), committed=committed)

    def _topics(self) -> Mapping[str, Topic]:
        known = {partition.topic for partition in self._newcomers.known}
        return self._clients.topics.source_topics(self._source.topics, self._source.topics_pattern, known)

    def _gone(self, existing: Collection[Partition]) -> dict[Partition, Blocked]:
        """Return the error of each known partition that is gone; one that only a pattern found may come and go."""
        named = {partition for partition in self._newcomers.known if partition.topic in self._source.topics}
        topics = {partition.topic for partition in existing}
        return {
            partition: _gone(partition, topic_exists=partition.topic in topics)
            for partition in sorted(named.difference(existing))
        }

    def _starts(self, offsets: Mapping[Partition, PartitionOffsets]) -> Mapping[Partition, int | None]:
        """
        Return where partitions without an offset start, if that is a time or the latest offset.

        It stays as at the first look: what comes in before the first commit, which may take several rounds, counts.
        """
        is_new = self._newcomers.is_new
        without = {each: at for each, at in offsets.items() if at.committed is None and not is_new(each)}
        if self._starting == "latest":
            ends = {each: at.watermarks.last_stable for each, at in without.items()}
            return {each: self._latest.setdefault((each, without[each].topic_id), end) for each, end in ends.items()}
        if isinstance(self._starting, str):
            return {}
        if self._start_time is None:
            self._start_time = _milliseconds(self._starting, self._runtime.wall_clock())
        return self._clients.topics.offsets_at(list(without), self._start_time)

    def _decide(self, at: PartitionOffsets, starts: Mapping[Partition, int | None]) -> OffsetRange:
        self._raise_what_a_task_found(at)
        self._newcomers.refuse_left_behind(at)
        is_new = self._newcomers.is_new(at.partition)
        by_time = self._start_time is not None and at.committed is None and not is_new
        if by_time and at.partition not in starts:
            raise Leaderless(at.partition)
        return decide(
            at,
            self._policy,
            first_seen=starts.get(at.partition),
            had_offset_in=self._had_offset_in.get(at.partition),
            is_new=is_new,
            cut=self._cut(at),
        )

    def _raise_what_a_task_found(self, at: PartitionOffsets) -> None:
        """Raise what blocked the partition, while its offset stands where it did and the finding is fresh."""
        if at.partition not in self._blocked:
            return
        error, until = self._blocked[at.partition]
        if at.next_offset(0) == error.offset and self._runtime.monotonic() < until:
            raise error
        del self._blocked[at.partition]


def _is_outside(committed: CommittedOffset | None, marks: Watermarks) -> bool:
    return committed is not None and not marks.log_start <= committed.offset <= marks.high_watermark


def _readable(committed: Committed) -> dict[Partition, CommittedOffset]:
    """Return the committed offsets that there are."""
    return {partition: at for partition, at in committed.items() if at is not None and not at.corrupt}


def blocked_by(receipt: Receipt) -> Blocked:
    """Return the error that a task was blocked by."""
    if receipt.cut is not None:
        return Truncated(receipt.partition, receipt.end, receipt.cut)
    return Blocked(receipt.partition, receipt.error, receipt.end, receipt.cure)


def _milliseconds(starting: FromTimestamp | FromDuration, now: float) -> int:
    """Return the time to start from, in milliseconds since the epoch."""
    if isinstance(starting, FromTimestamp):
        return starting.timestamp
    return max(0, round((now - starting.by_duration) * 1000))


def _only_spans(spans: Mapping[Partition, tuple[int, int] | None]) -> dict[Partition, tuple[int, int]]:
    return {partition: span for partition, span in spans.items() if span is not None}


def _gone(partition: Partition, *, topic_exists: bool) -> TopicGone:
    if topic_exists:
        return TopicGone(
            partition, "its topic was created again with fewer partitions", cure="restart Winnow to forget it"
        )
    return TopicGone(
        partition, "its topic does not exist any more", cure="create it again, or take it out of source.topics"
    )
