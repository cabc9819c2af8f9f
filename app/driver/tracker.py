"""Keeps the snapshot up to date with what the driver sees of partitions, and with the rounds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from app.driver.clients import Ages
from app.driver.discover import blocked_by
from app.driver.service_tracker import Listener, ServiceTracker
from app.driver.starting_offsets import PartitionOffsets, rewound, skipped
from app.driver.workload import SourceOffsets, Workload
from app.errors import AccountingError, PartitionError, SparkFailed
from app.model import NOBODY, OffsetRange, Outcome, Owner, Partition, Pause, Receipt, topics_differ
from app.offsets.metadata import NOTHING, Counts, OffsetMetadata
from app.rates import UNLIMITED, Rates
from app.runtime import REAL, Runtime
from app.status.excess import excesses
from app.status.snapshot import (
    NOTHING_KNOWN,
    About,
    Advance,
    Ending,
    PartitionState,
    PartitionStatus,
    Phase,
    Problem,
    RoundStatus,
)
from app.status.window import DAY_MOMENT_SECONDS, DAY_SECONDS, Moment, Point, recent, with_moment, with_point

# How many ended rounds are shown.
ENDED_ROUNDS = 20


class StatusTracker(ServiceTracker):
    """Tracks the partitions and the rounds of a service, too."""

    def __init__(
        self,
        group: str,
        listeners: Iterable[Listener] = (),
        runtime: Runtime = REAL,
        rates: Rates = UNLIMITED,
        about: About = NOTHING_KNOWN,
    ) -> None:
        super().__init__(group, listeners, runtime, about)
        self._rates = rates
        self._ranges: dict[Partition, OffsetRange] = {}
        self.undeliverable: Mapping[Partition, PartitionError] = {}
        """The error of each partition whose output cannot be delivered now."""
        self._working: frozenset[Partition] = frozenset()
        """The partitions of the current round, or of the last one."""
        self._metadata: dict[Partition, OffsetMetadata] = {}
        """The metadata of each committed offset at the last look."""
        self._silent: Collection[Partition] = ()
        """The partitions that did not respond at the last look; asking them more would only take time."""
        self._lost_until: dict[tuple[Partition, str], int] = {}
        """Up to which offset the losses of each partition are counted, by topic id: a new topic starts at 0."""
        self._refreshed_at = runtime.monotonic()

    def discovered(self, workload: Workload) -> None:
        self._ranges.update(workload.ranges)
        self.undeliverable = workload.undeliverable
        self._silent = workload.blocked.keys() - workload.offsets.keys()
        partitions = {each: self._with_losses(self._with_offset(at), at) for each, at in workload.offsets.items()}
        for partition, chosen in workload.ranges.items():
            planned = self._planned(partitions[partition])
            lost, again = skipped(chosen) or planned.skipped, rewound(chosen) or planned.rewound
            partitions[partition] = replace(planned, skipped=lost, rewound=again)
        for partition in workload.fenced.keys() & partitions.keys():
            partitions[partition] = replace(partitions[partition], fenced=partitions[partition].fenced + 1)
        for partition, error in workload.blocked.items():
            known = partitions.get(partition) or replace(self._known(partition), unstable_since=None)
            blocked = self._in_state(known, PartitionState.BLOCKED, error)
            partitions[partition] = replace(blocked, points=recent(known.points, self._now()))
        self._forget_gone(partitions)
        self._refreshed_at = self._runtime.monotonic()
        self._publish_look(workload, partitions, fenced=workload.fenced)

    def _forget_gone(self, existing: Collection[Partition]) -> None:
        """Keep only what belongs to partitions that are shown: topics of a pattern may come and go for ever."""
        self._ranges = {each: found for each, found in self._ranges.items() if each in existing}
        self._metadata = {each: found for each, found in self._metadata.items() if each in existing}
        self._lost_until = {each: until for each, until in self._lost_until.items() if each[0] in existing}

    def _planned(self, status: PartitionStatus) -> PartitionStatus:
        """Return a partition that a round can process; a failed one stays failed until a round has it, or a pause."""
        failed = status.state is PartitionState.FAILED and self.snapshot.paused is None
        if failed or self._stays_blocked(status):
            return status
        return self._in_state(status, self._at_rest(), self.undeliverable.get(status.partition))

    def _stays_blocked(self, status: PartitionStatus) -> bool:
        """Whether a partition is blocked until its offset moves, even while a task tries it again."""
        metadata = self._metadata.get(status.partition)
        return status.state is PartitionState.BLOCKED and metadata is not None and bool(metadata.blocked)

    def refreshed(self, found: SourceOffsets) -> None:
        """Record the offsets seen during a round: the progress of its tasks since the last look."""
        self.kafka_is_back()
        offsets, self.undeliverable, self._silent = found.offsets, found.undeliverable, found.unreadable
        now, totals = self._runtime.monotonic(), self._totals
        gone = {
            partition: status
            for partition, status in self.snapshot.partitions.items()
            if partition not in offsets and status.state is PartitionState.BLOCKED
        }
        partitions = gone | {partition: self._with_offset(at) for partition, at in offsets.items()}
        for partition, status in partitions.items():
            tried = status.state is PartitionState.BLOCKED and partition in self._working and partition in offsets
            if status.state is PartitionState.RUNNING or (tried and not self._stays_blocked(status)):
                partitions[partition] = self._in_state(status, PartitionState.RUNNING, found.trouble(partition))
        progress = Advance(self._totals.since(totals), now - self._refreshed_at)
        self._refreshed_at = now
        self._publish_look(found, partitions, progress=progress)

    def aged(self, ages: Ages | None) -> None:
        """Ask how old the waiting records are. Takes a moment, so never call it before a round."""
        statuses = self.snapshot.partitions.items()
        lagging = {at: status.next_offset for at, status in statuses if status.lag and at not in self._silent}
        found, known = ages.waiting(lagging) if ages else {}, self.snapshot.partitions
        waiting = {each: replace(known[each], waiting=found[each]) for each in found.keys() & known.keys()}
        self._publish(partitions={**known, **waiting})

    def _publish_look(
        self, found: SourceOffsets, partitions: Mapping[Partition, PartitionStatus], **changes: object
    ) -> None:
        now, totals = self._now(), self._totals
        lag = sum(each.lag for each in partitions.values())
        moment = Moment(now, totals.records, totals.out, totals.dead_total, lag, totals.dead, totals.filtered)
        hour = with_moment(self.snapshot.hour, moment)
        day = with_moment(self.snapshot.day, moment, DAY_SECONDS, DAY_MOMENT_SECONDS)
        over = excesses(self.snapshot.about.filter_limits, hour, self.snapshot.excesses)
        others = {"rival": self._rival(found.rival), "mirrors": found.mirrors}
        self._publish(partitions=partitions, looked=now, hour=hour, day=day, excesses=over, **others, **changes)

    def _rival(self, owner: Owner | None) -> Problem | None:
        if owner is None:
            return None
        cure = "stop it, or give it another group.id; two services with the same group fence each other"
        stands_by = self.snapshot.phase is Phase.STARTING
        if stands_by:
            cure = "nothing to do: this service stands by and starts working when the other one is gone"
        found = Problem(f"{owner} works for the same group", cure, self._now(), warns=stands_by)
        return found.continuing(self.snapshot.rival)

    def _in_state(
        self, status: PartitionStatus, state: PartitionState, error: PartitionError | None
    ) -> PartitionStatus:
        """Return a partition in a state, with the error that holds it up; what lasts keeps its beginning."""
        problem = None if error is None else Problem.of(error, self._now()).continuing(status.problem)
        since = status.since if status.state is state else self._now()
        return replace(status, state=state, since=since, problem=problem)

    def paused(self, pause: Pause | None) -> None:
        if pause is None and self.snapshot.paused is None:
            return
        before, after = {PartitionState.PLANNED, PartitionState.FAILED}, PartitionState.PAUSED
        if pause is None:
            before, after = {PartitionState.PAUSED}, PartitionState.PLANNED
        partitions = dict(self.snapshot.partitions)
        for partition, status in partitions.items():
            if status.state in before:
                changed = self._in_state(status, after, self.undeliverable.get(partition))
                # What stood still in the pause does not tell that work stalls.
                partitions[partition] = changed if pause else replace(changed, points=status.points[-1:])
        self._publish(paused=pause, partitions=partitions)

    @property
    def next_round(self) -> int:
        return self.snapshot.round.number + 1 if self.snapshot.round else 1

    def round_began(self, slots: int, tasks: int, ranges: Sequence[OffsetRange]) -> None:
        partitions = dict(self.snapshot.partitions)
        self._working = frozenset(each.partition for each in ranges)
        for each in ranges:
            self._ranges[each.partition] = each
            status, error = partitions[each.partition], self.undeliverable.get(each.partition)
            if self.snapshot.round is None:  # before the first work, nothing can have stalled
                status = replace(status, points=tuple(point._replace(at=self._now()) for point in status.points[-1:]))
            if not self._stays_blocked(status):
                partitions[each.partition] = self._in_state(status, PartitionState.RUNNING, error)
        lag = sum(partitions[each.partition].lag for each in ranges)
        began = RoundStatus(self.next_round, self._now(), slots, tasks, len(ranges), lag)
        phase = Phase.LEAVING if self.snapshot.phase is Phase.LEAVING else Phase.RUNNING
        self._publish(phase=phase, partitions=partitions, round=began)

    def tasks_lost(self, count: int) -> None:
        self._change_round(lost_tasks=count)

    def round_ends(self, ending: Ending, reason: str = "") -> None:
        self._change_round(ending=ending, reason=reason)

    def tasks_killed(self) -> None:
        self._change_round(killed=True)

    def round_dropped(self, seconds: float) -> None:
        """Record that the killed tasks of a round did not report."""
        self._round_is_over(seconds=seconds)

    def round_lost(self, error: SparkFailed, seconds: float) -> None:
        self._round_is_over(ending=Ending.LOST, reason=str(error), seconds=seconds)

    def round_ended(self, receipts: Iterable[Receipt], seconds: float) -> None:
        """Record the tasks' receipts. Raises AccountingError for a receipt that does not balance."""
        partitions, counts = dict(self.snapshot.partitions), Counts()
        for receipt in receipts:
            _check(receipt)
            counts += Counts(receipt.records, receipt.out, receipt.dead, filtered=receipt.filtered)
            partitions[receipt.partition] = self._reported(self._known(receipt.partition), receipt)
        ending = self.snapshot.round.ending if self.snapshot.round else None
        self._round_is_over(ending=ending or Ending.DONE, seconds=seconds, counts=counts)
        self._publish(partitions=partitions)

    def _reported(self, before: PartitionStatus, receipt: Receipt) -> PartitionStatus:
        state, problem = self._left_as(receipt)
        known = before.problem if receipt.partition in self.undeliverable else None
        # In an outage a task reports late what it has committed, as a rule before the outage.
        outage = self.snapshot.outage
        new = NOTHING if self._is_older(receipt) else self._newly_counted(receipt.partition, receipt.metadata)
        return replace(
            self._in_state(before, state, None),
            committed=receipt.end,
            moved=before.moved_at(receipt.end, outage.since if outage else self._now()),
            counts=before.counts + new,
            problem=problem or known,
            # A producer is replaced after a slow commit, too, without an error.
            recovered=receipt.error if receipt.reopened and problem is None else before.recovered,
            reopened=before.reopened + receipt.reopened,
        )

    def _left_as(self, receipt: Receipt) -> tuple[PartitionState, Problem | None]:
        match receipt.outcome:
            case Outcome.BLOCKED if OffsetMetadata.parse(receipt.metadata).cut is None:
                return PartitionState.BLOCKED, Problem.of(blocked_by(receipt), self._now())
            case Outcome.FAILED | Outcome.BLOCKED:  # what a truncation means is decided by the next discovery
                return PartitionState.FAILED, Problem(receipt.error, "", self._now())
        return self._at_rest(), None

    def _with_offset(self, at: PartitionOffsets) -> PartitionStatus:
        before = self._known(at.partition)
        committed = at.committed.offset if at.committed and not at.committed.corrupt else None
        lag, next_offset = self._unread(at)
        counts = before.counts + self._newly_counted(at.partition, at.committed.metadata if at.committed else "")
        end = at.watermarks.last_stable
        return replace(
            before,
            committed=committed,
            next_offset=next_offset,
            last_stable=end,
            high_watermark=at.watermarks.high_watermark,
            unstable_since=None if at.partition in self._silent else before.still_unstable(at.watermarks, self._now()),
            log_start=at.watermarks.log_start,
            lag=lag,
            waiting=before.waiting if before.lag and before.next_offset <= next_offset else None,
            rate_limit=self._rates.limit(backlog=at.next_offset(0) < self._metadata[at.partition].backlog),
            moved=before.moved_at(committed, self._now()),
            points=with_point(before.points, Point(self._now(), end, end - lag, counts.records)),
            counts=counts,
        )

    def _unread(self, at: PartitionOffsets) -> tuple[int, int]:
        """Return the lag and the next offset, also where the committed offset is of an earlier log."""
        if at.elsewhere is not None:
            return max(0, at.watermarks.last_stable - at.elsewhere), at.elsewhere
        chosen = self._ranges.get(at.partition)
        if chosen is None or topics_differ(chosen.topic_id, at.topic_id):
            return at.lag(at.watermarks.log_start), at.next_offset(at.watermarks.log_start)
        return at.lag(chosen.start, chosen.end), at.next_offset(chosen.start)

    def _with_losses(self, status: PartitionStatus, at: PartitionOffsets) -> PartitionStatus:
        """
        Count each record that retention deleted before it was read, once. Not meant for a running partition.

        While a partition waits for an operator, more may be deleted between two discoveries.
        """
        if at.committed is None or at.committed.corrupt:
            return status
        counted = self._lost_until.get((at.partition, at.topic_id), 0)
        self._lost_until[at.partition, at.topic_id] = max(at.watermarks.log_start, counted)
        first = max(at.committed.offset, counted)
        return replace(status, lost=status.lost + max(0, at.watermarks.log_start - first))

    def _newly_counted(self, partition: Partition, text: str) -> Counts:
        """Return what our tasks have counted since the last look; the first look counts nothing."""
        before, metadata = self._metadata.get(partition), OffsetMetadata.parse(text)
        self._metadata[partition] = metadata
        if metadata.report is not None and metadata.owner == self._me:
            self._times.take(metadata.report)
        if before is None or metadata.owner not in (self._me, NOBODY):
            return Counts()
        new = metadata.counts.since(before.counts) if metadata.continues(before) else metadata.counts
        self._totals += new
        return new

    def _is_older(self, receipt: Receipt) -> bool:
        """Whether the task committed nothing, or a look has seen a later commit, whose answer the task did not get."""
        if not receipt.metadata:
            return True
        seen, told = self._metadata.get(receipt.partition), OffsetMetadata.parse(receipt.metadata)
        return seen is not None and told.continues(seen) and told.counts.is_before(seen.counts)

    def _known(self, partition: Partition) -> PartitionStatus:
        """Return the status of a partition, a new one if its topic was deleted in the meantime."""
        known = self.snapshot.partitions.get(partition)
        return known or PartitionStatus(partition, self._at_rest(), self._now())

    def _at_rest(self) -> PartitionState:
        """Return the state of a healthy partition that no task works on."""
        return PartitionState.PLANNED if self.snapshot.paused is None else PartitionState.PAUSED

    def _round_is_over(self, **changes: object) -> None:
        if self.snapshot.round is None:
            return
        over = replace(self.snapshot.round, **changes)  # type: ignore[arg-type]  # its own fields
        ended, endings = (*self.snapshot.ended, over)[-ENDED_ROUNDS:], dict(self.snapshot.endings)
        if over.ending is not None:
            endings[over.ending] = endings.get(over.ending, 0) + 1
        self._publish(round=over, ended=ended, endings=endings)

    def _change_round(self, **changes: object) -> None:
        if self.snapshot.round is not None:
            self._publish(round=replace(self.snapshot.round, **changes))  # type: ignore[arg-type]  # its own fields


def _check(receipt: Receipt) -> None:
    if not receipt.balances:
        where, dead = f"{receipt.partition}@{receipt.start}", sum(receipt.dead.values())
        gone = f"{receipt.out} out, {dead} dead letters and {sum(receipt.filtered.values())} filtered"
        msg = f"{where}: {receipt.records} records in, but {gone}"
        raise AccountingError(msg, "this is a bug; please report it with this message")
