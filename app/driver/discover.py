"""Discovers the source partitions before a round: which exist, their offsets, and where each one starts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, KeysView, Mapping
from dataclasses import replace

from app.config import Config, FromDuration, FromTimestamp
from app.driver.clients import Clients
from app.driver.destinations import Destinations
from app.driver.newcomers import Newcomers
from app.driver.owners import Owners
from app.driver.starting_offsets import Offsets, PartitionOffsets, StartPolicy, cut_of, decide
from app.driver.workload import Committed, SourceOffsets, Workload
from app.errors import Blocked, Leaderless, TopicGone, Unreachable
from app.model import (
    NOBODY,
    CommittedOffset,
    OffsetRange,
    Outcome,
    Owner,
    Partition,
    Receipt,
    Topic,
    Watermarks,
    partitions_of,
)
from app.offsets.contract import is_local
from app.offsets.metadata import OffsetMetadata
from app.runtime import REAL, Runtime

# How long a partition that a task found blocked is left out of plans unless its offset moves. If it failed again, that
# would cost all partitions a rebalance. WinnowPartitionBlocked must see it for a minute, in scrapes a minute apart.
BLOCKED_SECONDS = 120.0
# Why a known partition is gone, and the cure.
SHRUNK = "its topic was recreated with fewer partitions", "restart Winnow to forget this partition"
DELETED = "its topic no longer exists", "recreate the topic, or remove it from source.topics"


class Discovery:
    """Discovers partitions and remembers them, to notice an offset that vanishes and a partition that appears."""

    def __init__(self, config: Config, clients: Clients, runtime: Runtime = REAL) -> None:
        self._runtime = runtime
        self._source = config.source
        self._starting = config.starting_offsets
        self._policy = StartPolicy.of(config, keeps=not is_local(clients.offsets))
        self._first_ends: dict[tuple[Partition, str], int] = {}
        """For partitions that start at their end: that end when first seen, by topic id."""
        self._start_time: int | None = None
        """For `starting.offsets` with a time: that time in milliseconds, the same for all partitions."""
        self._clients = clients
        self.owner = Owner(int(runtime.wall_clock() * 1000), runtime.host, config.sink.topic, config.generation)
        self.owners = Owners(self.owner, config.group_id, runtime)
        self.takeover = self.owners.takeover
        self._fenced: set[Partition] = set()
        """The partitions that tasks lost to other owners since the last discovery."""
        self._destinations = Destinations(config, clients.destinations)
        self._had_offset_in: dict[Partition, str] = {}
        """The id of the topic in which a committed offset was last seen."""
        self._reported: dict[Partition, CommittedOffset] = {}
        """The offset that tasks have committed in each partition whose offset was never read: it may be pending."""
        self._blocked: dict[Partition, tuple[Blocked, float]] = {}
        """The errors that tasks reported, and until when each is believed."""
        self._cuts: dict[Partition, tuple[CommittedOffset, int]] = {}
        """Where a partition ended below its committed offset; valid until that offset is set."""
        self._newcomers = Newcomers(config, clients.copies)
        self._last_seen: Offsets = {}
        self._planned: Committed = {}
        """The committed offsets at the last plan."""

    def discover(self, *, stable: bool = True) -> Workload:
        """
        Look at all partitions and decide where each one starts.

        Pass `stable=False` if tasks will read the offsets again: a stable read waits for open transactions.

        Raises:
            Unreachable: Kafka is not responding.
            TopicMissing, ForeignMember, ForeignSink, Superseded, NotAllowed: an operator must act.
        """
        found = self._source_offsets(stable=stable)
        self._remember(found.offsets)
        self._forget_gone(found.committed.keys())
        offsets = self._with_known_cuts(found.offsets)
        unreadable = frozenset(found.committed) - offsets.keys()
        starts = self._starts(offsets)
        ranges: dict[Partition, OffsetRange] = {}
        blocked: dict[Partition, Blocked] = {each: Leaderless(each) for each in sorted(unreadable)}
        blocked.update(self._gone(found.committed.keys()))
        for partition, at in offsets.items():
            try:
                ranges[partition] = self._decide(at, starts)
            except Blocked as error:
                blocked[partition] = error
        fenced = self._fenced & offsets.keys() - self.takeover.taken.keys()
        owners = {each: self._committer_since_plan(each, found.committed[each]) for each in fenced}
        self._fenced.clear()
        self._planned = found.committed
        return Workload(
            offsets,
            unreadable,
            self._destinations.undeliverable(ranges),
            self.owners.rival,
            self._clients.mirrors.status,
            found.committed,
            ranges=ranges,
            blocked=blocked,
            fenced=owners,
        )

    def _committer_since_plan(self, partition: Partition, at: CommittedOffset | None) -> Owner | None:
        """Return the other run that has committed since the last plan; older commits do not say who fences us now."""
        by = OffsetMetadata.of(at).owner
        return None if by == self.owner or at == self._planned.get(partition) else by

    @property
    def partitions(self) -> KeysView[Partition]:
        """The partitions at the last plan."""
        return self._planned.keys()

    def at_rest(self) -> set[Partition]:
        """
        Return the partitions whose offsets are ours to renew between two rounds; another run renews what it commits.

        Asks only the store of the offsets, which may answer while the source does not.
        """
        found = self._clients.offsets.load(self._planned, stable=False)
        by_others = {each for each, at in found.items() if self._committer_since_plan(each, at) not in (None, NOBODY)}
        return set(found) - by_others - self.takeover.held

    def refresh(self) -> SourceOffsets:
        """Return the offsets while tasks commit, without deciding anything. Raises what `discover` raises."""
        found = self._source_offsets(stable=False)
        last_known = {each: self._last_seen[each] for each in found.unreadable & self._last_seen.keys()}
        offsets = {**last_known, **found.offsets}
        self._remember(offsets)
        undeliverable = self._destinations.undeliverable(offsets)
        mirrors = self._clients.mirrors.status
        return SourceOffsets(offsets, found.unreadable, undeliverable, self.owners.rival, mirrors, found.committed)

    def reported(self, receipts: Iterable[Receipt], fenced: Collection[Partition] = ()) -> None:
        """
        Remember what tasks found blocked or lost, and what they committed, which may vanish before the next discovery.

        The driver itself fenced the partitions in `fenced`, to end their tasks.
        """
        for receipt in receipts:
            if receipt.outcome is Outcome.FENCED and receipt.partition not in fenced:
                self._fenced.add(receipt.partition)
            metadata = OffsetMetadata.parse(receipt.metadata)
            if receipt.outcome is Outcome.BLOCKED and metadata.cut is None:
                seconds = math.inf if receipt.tripped else BLOCKED_SECONDS
                self._blocked[receipt.partition] = blocked_by(receipt), self._runtime.monotonic() + seconds
            if is_local(self._clients.offsets) and receipt.metadata:
                self._clients.offsets.reset(receipt.partition, receipt.end, receipt.metadata)
            if metadata.is_ours:
                if metadata.topic_id and receipt.partition not in self._had_offset_in.keys() - self._reported.keys():
                    self._reported[receipt.partition] = CommittedOffset(receipt.end, receipt.metadata)
                self._had_offset_in[receipt.partition] = metadata.topic_id

    def _remember(self, offsets: Offsets) -> None:
        self._last_seen = offsets
        for partition, at in offsets.items():
            if at.committed is not None and (cut := self._cut(at)) is not None:
                self._cuts[partition] = at.committed, cut

    def _forget_gone(self, existing: Collection[Partition]) -> None:
        """
        Forget the partitions that are gone and that only the pattern found: their topics may come and go for ever.

        One that never had an offset stays, because it would be taken for a new one if a broker just did not list it.
        """
        gone = {each for each in self._had_offset_in.keys() - existing if each.topic not in self._source.topics}
        for each in gone:
            del self._had_offset_in[each]
            self._reported.pop(each, None)
            self._blocked.pop(each, None)
            self._cuts.pop(each, None)
        self._newcomers.forget(gone)
        self.owners.forget(gone)

    def _with_known_cuts(self, offsets: Offsets) -> Offsets:
        """
        Ask Kafka where each truncated log was cut. Since it was last seen, it may have grown or been cut again.

        Leave out the partitions for which Kafka does not tell.
        """
        known = dict(offsets)
        for partition, at in offsets.items():
            if at.committed is None or (cut := self._cut(at)) is None:
                continue
            last = OffsetMetadata.of(at.committed).read
            try:
                found = None if last is None else self._clients.find_cut(partition, last)
            except Unreachable:
                del known[partition]
            else:
                self._cuts[partition] = at.committed, cut if found is None else min(cut, found)
        return known

    def _cut(self, at: PartitionOffsets) -> int | None:
        committed, cut = self._cuts.get(at.partition, (None, None))
        return cut_of(at, cut if committed == at.committed else None)

    def _source_offsets(self, *, stable: bool) -> SourceOffsets:
        self._clients.group.refuse_foreign_members()
        topics = self._topics()
        partitions = partitions_of(topics.values())
        led = [each for each in partitions if each.number not in topics[each.topic].leaderless]
        if partitions and not led:
            raise Unreachable("no source partition has a leader", "restore the brokers; Winnow resumes on its own")
        # Committed offsets are read before the watermarks: the end never goes back, so an offset committed in between
        # cannot appear to be past the end. The log start can still pass an offset that moves in between. A discovery
        # decides by the log start, but runs while no task commits; a refresh believes it only for offsets that have not
        # moved since the last refresh (`app.driver.rebalance`).
        committed = self._committed(partitions, stable=stable)
        watermarks = self._clients.topics.watermarks(led)
        if any(_is_outside(committed[each], marks) for each, marks in watermarks.items()):
            topics = {**topics, **self._topics()}  # a topic recreated in the meantime has another id
        offsets = {
            each: PartitionOffsets(each, topics[each.topic].id, marks, committed[each])
            for each, marks in watermarks.items()
        }
        self._newcomers.record(committed, topics)
        self.owners.observe(committed)
        self._clients.mirrors.put_all({each: at for each, at in committed.items() if at and not at.corrupt})
        self._had_offset_in |= {
            each: OffsetMetadata.of(at).topic_id or topics[each.topic].id
            for each, at in committed.items()
            if at is not None
        }
        return SourceOffsets(offsets, frozenset(partitions) - offsets.keys(), committed=committed)

    def _committed(self, partitions: Collection[Partition], *, stable: bool) -> Committed:
        """
        Return the committed offsets, `stable` if possible.

        A hanging transaction blocks reading a stable offset. Its partition is then planned from the last offset before
        the transaction; the task ends the transaction and reads the offset again (`app.executor.task`). If there was no
        offset before it, a task's receipt may tell which one is pending.
        """
        store = self._clients.offsets
        try:
            found = store.load(partitions, stable=stable)
        except Unreachable:
            if not (stable and store.transactional):
                raise
            found = store.load(partitions, stable=False)
        for each in found:
            self._reported.pop(each, None)
        return {each: found.get(each, self._reported.get(each)) for each in partitions}

    def _topics(self) -> Mapping[str, Topic]:
        known = {partition.topic for partition in self._newcomers.known}
        return self._clients.topics.source_topics(self._source.topics, self._source.topics_pattern, known)

    def _gone(self, existing: Collection[Partition]) -> dict[Partition, Blocked]:
        """Return the error of each known partition that is gone. Topics found only by the pattern may come and go."""
        named = {partition for partition in self._newcomers.known if partition.topic in self._source.topics}
        topics = {partition.topic for partition in existing}
        gone: dict[Partition, Blocked] = {}
        for partition in sorted(named.difference(existing)):
            cause, cure = SHRUNK if partition.topic in topics else DELETED
            gone[partition] = TopicGone(partition, cause, cure=cure)
        return gone

    def _starts(self, offsets: Offsets) -> Mapping[Partition, int]:
        """
        Return where partitions without an offset start if `starting.offsets` is latest or a time.

        The answer stays as first given: records that arrive before the first commit, maybe several rounds later, count.
        """
        is_new = self._newcomers.is_new
        without = {each: at for each, at in offsets.items() if at.committed is None and not is_new(each)}
        if self._starting == "latest":
            return {each: self._as_first_given(at, None) for each, at in without.items()}
        if isinstance(self._starting, str):
            return {}
        if self._start_time is None:
            self._start_time = _milliseconds(self._starting, self._runtime.wall_clock())
        found = self._clients.topics.offsets_at(list(without), self._start_time)
        return {each: self._as_first_given(without[each], offset) for each, offset in found.items()}

    def _as_first_given(self, at: PartitionOffsets, found: int | None) -> int:
        """Return the offset found for a time; the end at the first look if there was none then."""
        key = at.partition, at.topic_id
        if found is not None and key not in self._first_ends:
            return found
        end = self._first_ends.setdefault(key, at.watermarks.last_stable)
        return min(max(end, at.watermarks.log_start), at.watermarks.last_stable)

    def _decide(self, at: PartitionOffsets, starts: Mapping[Partition, int]) -> OffsetRange:
        self._raise_what_a_task_found(at)
        self._newcomers.refuse_left_behind(at)
        is_new = self._newcomers.is_new(at.partition)
        by_time = self._start_time is not None and at.committed is None and not is_new
        if by_time and at.partition not in starts:
            raise Leaderless(at.partition)
        start = decide(
            at,
            self._policy,
            first_seen=starts.get(at.partition),
            had_offset_in=self._had_offset_in.get(at.partition),
            is_new=is_new,
            cut=self._cut(at),
        )
        return replace(start, never_read=at.partition in self._reported)

    def _raise_what_a_task_found(self, at: PartitionOffsets) -> None:
        if at.partition not in self._blocked:
            return
        error, until = self._blocked[at.partition]
        stands = at.committed is None or at.next_offset(0) == error.offset
        # An offset that changed since the last plan and names no run was set by an operator, perhaps to itself.
        is_set = at.partition in self._planned and self._committer_since_plan(at.partition, at.committed) == NOBODY
        if stands and not is_set and self._runtime.monotonic() < until:
            raise error
        del self._blocked[at.partition]


def _is_outside(committed: CommittedOffset | None, marks: Watermarks) -> bool:
    return committed is not None and not marks.log_start <= committed.offset <= marks.high_watermark


def blocked_by(receipt: Receipt) -> Blocked:
    return Blocked(receipt.partition, receipt.error, receipt.end, receipt.cure)


def _milliseconds(starting: FromTimestamp | FromDuration, now: float) -> int:
    if isinstance(starting, FromTimestamp):
        return starting.timestamp
    return max(0, round((now - starting.by_duration) * 1000))
