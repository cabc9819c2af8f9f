"""
One task of a round: cleanse the assigned source partitions until the deadline.

Open one writer per source partition, which fences earlier owners, and only then read the committed offsets. Then
consume, parse, produce, and commit output, dead letters and offset together until the deadline, the end or a fence.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from typing import Never, Self

from app.errors import NotUsable, OffsetPending, PartitionError, Transient, Unreachable
from app.executor.breaker import CircuitBreaker
from app.executor.calls import Calls
from app.executor.cleanse import Cleansed, CleansedChunk, Cleanser
from app.executor.clients import ClientFactory
from app.executor.commits import Commits
from app.executor.fences import Fences
from app.executor.isolation import is_isolated, parsing
from app.executor.lane.lane import Lane
from app.executor.lane.states import Blocking, Closed, Ended, Opened, Ready, State, refuse_if_taken
from app.executor.pacing import LEAST, Pacing
from app.executor.parse import REFUSED
from app.executor.stopwatch import Stopwatch
from app.model import Assignment, CommittedOffset, OffsetRange, Outcome, Partition, Receipt, TaskConfig
from app.records import Chunk
from app.runtime import REAL, Runtime
from app.watchdog import Watchdog
from parsers import registry
from parsers.contract import Parser

# Short, for punctual commits and so that a chunk of large records cannot grow without bound.
POLL_SECONDS = 0.05
# How soon a task without traffic notices that the driver has fenced its control partition.
HEARTBEAT_SECONDS = 1.0
# How long opening may take before it counts as hanging: with hundreds of lanes on a busy broker it takes seconds. The
# task starts without the late lanes once no lane has opened for LATE_SECONDS.
OPEN_SECONDS, LATE_SECONDS = 5.0, 1.0
# The most records of a poll, and for how long, during a take-over: readers are waiting for the first ones
# (python -m tests.bench.takeover).
FIRST_RECORDS, FIRST_SECONDS = 2_000, 5.0
# How long an own parser may work on a chunk, while nothing is committed: the watchdog and the driver wait for commits.
CHUNK_SECONDS = 2.0
# How long a hanging call may delay the end of a task.
LAST_SECONDS = 2.0
# How often to free delivered records: many are delivered between two commits of a lane.
FREE_SECONDS = 0.5


def run(
    assignment: Assignment, clients: ClientFactory, parser: Parser, seconds: float, runtime: Runtime = REAL
) -> list[Receipt]:
    """Cleanse the assigned partitions for this many seconds; return a receipt of what is committed for each."""
    ids = {each.partition.topic: each.topic_id for each in assignment.ranges}
    with (
        Watchdog() as watchdog,
        _garbage_collection(assignment.config),
        parsing(parser, assignment, watchdog) as parse,
    ):
        cleanser = Cleanser(assignment.config, parser, parse, ids, _clocks(assignment, runtime))
        try:
            task = Task(assignment, clients, runtime, watchdog)
        except Unreachable as error:  # the next round tries again
            return [_not_begun(each, assignment, error) for each in assignment.ranges]
        with task:
            task.open()
            stopwatch = task.stopwatch
            stopwatch.start()
            deadline = runtime.monotonic() + seconds  # opening hundreds of partitions must leave time for records
            while task.working and runtime.monotonic() < deadline:
                watchdog.feed()
                chunk = task.poll()
                stopwatch.waited()
                if chunk is not None:
                    cleansed = cleanser.cleanse(chunk)
                    task.adapt(len(cleansed.chunk), stopwatch.parsed())
                    task.deliver(cleansed, cleanser)
                    task.read_again(chunk.partitions_from(len(cleansed.chunk)))
                    stopwatch.produced()
                task.keep_up(catching_up=chunk is not None and chunk.full)
                stopwatch.kept_up()
            return task.finish()


def _not_begun(planned: OffsetRange, assignment: Assignment, error: Unreachable) -> Receipt:
    partition, start = planned.partition, planned.start
    allowance, window = assignment.allowances.get(partition), assignment.windows.get(partition, ())
    return Receipt(
        partition, start, start, outcome=Outcome.FAILED, error=str(error), allowance=allowance, window=window
    )


def _clocks(assignment: Assignment, runtime: Runtime) -> Sequence[Callable[[], float]]:
    """Return this machine's clock, and the driver's as the plan told it, which goes on here whatever ours is set to."""
    planned, began = assignment.deadline - assignment.seconds, runtime.monotonic()
    return runtime.wall_clock, lambda: planned + runtime.monotonic() - began


def _is_own(config: TaskConfig) -> bool:
    """Tell whether the parser is a user's."""
    return config.parser.name not in registry.PARSERS.built_in


@contextlib.contextmanager
def _garbage_collection(config: TaskConfig) -> Iterator[None]:
    """
    Rely on reference counts until the round is over, unless the parser is a user's, which may make cycles.

    The collector would visit every consumed message again and again, which takes a fifth of the time. Our code makes no
    cycles.
    """
    if not _is_own(config):
        gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Task:
    """Opens the lanes of one task, passes them their records, and closes them."""

    def __init__(self, assignment: Assignment, clients: ClientFactory, runtime: Runtime, watchdog: Watchdog) -> None:
        config = assignment.config
        self._clients = clients
        self.consumer = clients.consumer()
        self.stopwatch = Stopwatch(assignment.attempt, runtime.monotonic)
        self._clock = runtime.monotonic
        try:
            self._offsets = clients.offsets()
        except Unreachable:
            self.consumer.close()
            raise
        self._lanes = {each.partition: Lane(each, self.consumer, config.owner) for each in assignment.ranges}
        # A retry knows neither how old the breaker's windows are by now nor what was counted since.
        windows = {} if assignment.attempt.number else assignment.windows
        self._breaker = CircuitBreaker(config.breaker, windows, self._clock)
        self._threads = runtime.threads(2 * len(self._lanes) + 1, "winnow-lane")
        self._pacing = Pacing(config.rates, config.buffer_memory, _allowances(assignment), self._clock)
        self._calls = Calls(self._threads, self._clock, watchdog, self._send_rest)
        self._commits = Commits(
            len(self._lanes),
            config.commit_seconds,
            config.transaction_seconds,
            self._calls,
            self._clock,
            stopwatch=self.stopwatch,
            pacing=self._pacing,
            # One lane is enough: it commits once a second even without traffic.
            reports=lambda lane: lane is self._control_lane,
        )
        self._next_free = 0.0
        self._told: set[Partition] = set()
        """The blocked partitions whose reason has been stored with their offsets."""
        self._fences = Fences(config.owner, self._offsets, runtime.monotonic)
        self._takes_over = assignment.takes_over
        self._without_records = set(self._lanes) if self._takes_over else set()
        """The partitions taken over that have not committed a record since."""
        self._parseable = FIRST_RECORDS if _is_own(config) else None
        """How many records the parser cleanses in CHUNK_SECONDS; None for one of ours, which are fast."""
        self._hurries_until = self._clock() + FIRST_SECONDS if self._takes_over else 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop all uncommitted work: after an error none of it may count."""
        try:
            self._calls.abandon(LAST_SECONDS)
            for lane in self._free_lanes():
                self._calls.start(lane, lane.finish().discard)
            self._calls.settle()
            self._calls.abandon(LAST_SECONDS)
        finally:
            self._close()
            self._threads.shutdown(wait=False)

    def _close(self) -> None:
        """Close the clients once no call uses them; closing them earlier crashes the process in librdkafka."""

        def close() -> None:
            wait(in_use)
            self._offsets.close()
            self.consumer.close()

        if in_use := self._calls.ends:
            self._threads.submit(close)
        else:
            close()

    @property
    def working(self) -> bool:
        """
        Whether there is work left. A fence on one partition ends the whole task, cleanly for the others.

        So does a consumer that Kafka denies access: the next task reads passwords and certificates again.
        When a later generation takes over, the task continues with the partitions that it still has.
        """
        goes_on = not (self._fences.end_the_task or self.consumer.refused)
        return goes_on and any(lane.outcome is None for lane in self._lanes.values())

    def open(self) -> None:
        """
        Open all lanes in parallel: fence, then read the committed offsets, then decide where to start.

        What a later run has taken since the plan is not fenced. Lanes whose opening fails or hangs follow later. In a
        take-over each lane opens on its own, in parallel with the record flow, because a fenced partition must not wait
        for the others.
        """
        if self._takes_over:
            self._prepare_to_take_over()
            return
        closed = [(lane, lane.state) for lane in self._free_lanes() if isinstance(lane.state, Closed)]
        try:
            found = self._committed([lane.partition for lane, _ in closed], stable=False)
            self._side_by_side((lane, partial(self._open, state, found.get(lane.partition))) for lane, state in closed)
            opened = [(lane, lane.state) for lane in self._free_lanes() if isinstance(lane.state, Opened)]
            partitions = [lane.partition for lane, _ in opened]
            self.consumer.connect(partitions)
            committed = self._committed(partitions)
        except PartitionError as error:
            for lane in self._free_lanes():
                if not lane.ledger.troubled:
                    lane.give_up(Transient(lane.partition, error.cause), self._clock())
            return
        self._side_by_side((lane, partial(self._begin, state, committed.get(lane.partition))) for lane, state in opened)
        self._attend()

    def _prepare_to_take_over(self) -> None:
        """Look up the partitions' leaders, and start to open every lane in the background."""
        with contextlib.suppress(PartitionError):  # each lane will see the error itself
            self.consumer.connect(list(self._lanes))
        for lane in self._lanes.values():
            if isinstance(lane.state, Closed):
                self._calls.start(lane, partial(self._open_again, lane.state), OPEN_SECONDS)

    def _side_by_side(self, calls: Iterable[tuple[Lane, Blocking]]) -> None:
        for lane, call in calls:
            self._calls.start(lane, call, OPEN_SECONDS)
        self._calls.settle_while_some_end(LATE_SECONDS)

    def _open_again(self, closed: Closed) -> State:
        """
        Do the same for one lane in the background.

        If only the stable offset cannot be read, a hanging transaction is about to move it (`app.kafka.hanging`).
        """
        partition = closed.ledger.partition
        return self._begin_alone(self._open(closed, self._committed([partition], stable=False).get(partition)))

    def _open(self, closed: Closed, committed: CommittedOffset | None) -> Opened:
        """Open a lane with this committed offset, unless a later run has taken it."""
        refuse_if_taken(closed.ledger, committed)
        return closed.open(self._clients, self._offsets)

    def _begin_alone(self, opened: Opened) -> State:
        partition = opened.ledger.partition
        try:
            committed = self._committed([partition])
        except Transient:
            committed = self._no_longer_pending(opened)
        return self._begin(opened, committed.get(partition))

    def _no_longer_pending(self, opened: Opened) -> Mapping[Partition, CommittedOffset]:
        """End the transaction that seems to block the stable offset, and return that."""
        partition = opened.ledger.partition
        try:
            opened.end_pending(self._committed([partition], stable=False).get(partition))
        except OffsetPending as pending:
            try:  # perhaps none was pending, and Kafka was only slow
                return self._committed([partition])
            except Transient:
                raise pending from None
        return self._committed([partition])

    def _begin(self, opened: Opened, committed: CommittedOffset | None) -> State:
        # In a take-over, the offset in our name tells the other service who has fenced it.
        return opened.begin(committed, self._clock(), claim=self._takes_over)

    def _committed(
        self, partitions: Sequence[Partition], *, stable: bool = True
    ) -> Mapping[Partition, CommittedOffset]:
        if not partitions:  # no lane has opened
            return {}
        try:
            return self._offsets.load(partitions, stable=stable)
        except (Unreachable, NotUsable) as error:
            raise Transient(partitions[0], f"cannot read the committed offset: {error}") from error

    def _free_lanes(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane not in self._calls]

    def poll(self) -> Chunk | None:
        first = FIRST_RECORDS if self._clock() < self._hurries_until else None
        limits = (self._pacing.most(self._lanes.values()), self._parseable, first)
        return self.consumer.poll(POLL_SECONDS, min((limit for limit in limits if limit is not None), default=None))

    def adapt(self, records: int, seconds: float) -> None:
        """Adapt the next chunk's size to how long an own parser took for this one."""
        if records and self._parseable is not None:
            self._parseable = max(1, int(records * CHUNK_SECONDS / max(seconds, 0.001)))

    def deliver(self, results: CleansedChunk, cleanser: Cleanser) -> None:
        """Pass each lane its part of a cleansed chunk, in order."""
        chunk = results.chunk
        for partition, begin, end in chunk.by_partition():
            lane = self._lanes[partition]
            cleansed, refusal = results.rows(begin, end, lane.ledger.stop), lane.ledger.refusal
            if refusal is not None and cleansed.records:
                cleansed = cleansed.rejected(cleanser.refused(chunk, begin, refusal), REFUSED)
            self._calls.step(lane, partial(self._take, lane, cleansed))
        for partition, position in chunk.ends:
            self._calls.step(self._lanes[partition], partial(Ready.pass_over, position=position))
        for failure in chunk.failures:
            self._calls.step(self._lanes[failure.partition], partial(_fail, failure))

    def _take(self, lane: Lane, cleansed: Cleansed, ready: Ready) -> None:
        self._breaker.judge(lane.partition, ready.ledger.progress, cleansed)
        ready.take(cleansed)
        self._pacing.took(lane, cleansed)

    def _send_rest(self, ready: Ready) -> Ready:
        with self._pacing.delivering(ready.ledger):
            return ready.send_rest()

    def read_again(self, partitions: Iterable[Partition]) -> None:
        """Read on behind what was delivered; drop the rest of the chunk, which was not parsed."""
        for partition in partitions:
            self._lanes[partition].hold()

    def keep_up(self, *, catching_up: bool) -> None:
        """Commit what is due, finish lanes at their end, and reopen those whose back-off is over."""
        self._calls.settle_ended()
        self._lanes |= {lane.partition: lane for lane in self._calls.replace_overdue()}
        now = self._clock()
        if self._commits.pass_is_due(now, catching_up=catching_up):
            self._commits.start_pass(self._lanes.values(), now)
        self._commit_first_records()
        self._attend()
        self._free(now)
        control = self._control_lane
        if control.ready is not None and now - control.ledger.committed_at >= HEARTBEAT_SECONDS:
            self._commits.start([control])

    def _commit_first_records(self) -> None:
        """Commit the first records of each partition taken over at once: its readers have waited long enough."""
        for lane in [self._lanes[each] for each in self._without_records]:
            if (ready := lane.ready) is not None and ready.dirty and lane not in self._calls:
                self._without_records.discard(lane.partition)
                self._commits.start([lane])

    def _attend(self) -> None:
        """Handle the lanes that need more than the next records."""
        self._tell_why_blocked()
        for lane in [lane for lane in self._lanes.values() if lane.running is None or lane.ledger.at_end]:
            if lane not in self._calls:
                self._attend_to(lane, self._clock())

    def _tell_why_blocked(self) -> None:
        """Store with each blocked partition's offset why it is blocked, once."""
        for lane in self._free_lanes():
            ended = lane.state
            if isinstance(ended, Ended) and ended.outcome is Outcome.BLOCKED and lane.partition not in self._told:
                self._told.add(lane.partition)
                self._calls.start(lane, partial(ended.tell, self._clients, self._offsets))

    def _attend_to(self, lane: Lane, now: float) -> None:
        if (ready := lane.ready) is None or self._pacing.rests(lane):
            lane.hold()
        else:
            self._calls.attempt(lane, ready, Ready.read)
        match lane.state:
            case Ready() as ready if ready.dirty and (
                lane.ledger.at_end or lane.ledger.at_stop or self._pacing.waits_for_commit(lane)
            ):
                self._commits.start([lane])
            case Ready() if lane.ledger.at_end:
                lane.finish()
            case Opened() as opened:
                self._calls.start(lane, partial(self._begin_alone, opened), OPEN_SECONDS)
            case Closed() | Ended() as off if off.writer is not None:
                self._calls.start(lane, off.discard)
            case Closed() as closed if closed.reopens(now):
                self._calls.start(lane, partial(self._open_again, closed), OPEN_SECONDS)
            case Ended(outcome=Outcome.FENCED) as ended if lane.partition not in self._fences.taken:
                self._calls.start(lane, partial(self._look, ended, once=lane is self._first_lane))

    def _look(self, ended: Ended, *, once: bool) -> Ended:
        self._fences.look(ended.ledger.partition, once=once)
        return ended

    def _free(self, now: float) -> None:
        if now < self._next_free:
            return
        self._next_free = now + FREE_SECONDS
        for lane in self._lanes.values():
            if (ready := lane.ready) is not None and lane not in self._calls:
                self._calls.attempt(lane, ready, lambda ready: ready.writer.free())

    @property
    def _control_lane(self) -> Lane:
        """The lane by which the driver ends the task: the first one without trouble, which the driver sees too."""
        lanes = self._lanes.values()
        return next((lane for lane in lanes if lane.ready and not lane.ledger.troubled), next(iter(lanes)))

    @property
    def _first_lane(self) -> Lane:
        """The lane that the driver would fence next to end the task, if it has fenced this one already."""
        lanes = self._lanes.values()
        ours = (lane for lane in lanes if lane.partition not in self._fences.taken and not lane.ledger.troubled)
        return next(ours, next(iter(lanes)))

    def finish(self) -> list[Receipt]:
        """
        Commit what is open, renew the offsets of idle partitions, and return the receipts.

        Hanging lanes come last, and delay the receipts by LAST_SECONDS at most.
        """
        self._calls.settle()
        self._tell_why_blocked()
        self._commits.start(self._lanes.values())
        self._calls.settle()
        self._calls.abandon(LAST_SECONDS)
        return [self._receipt(lane) for lane in self._lanes.values()]

    def _receipt(self, lane: Lane) -> Receipt:
        """End a lane; return what it did, and what the partition's next task must know."""
        receipt = lane.finish().receipt()
        return replace(receipt, allowance=self._pacing.allowance(lane.partition), window=self._breaker.window(receipt))


def _fail(failure: PartitionError, _: Ready) -> Never:
    raise failure


def _allowances(assignment: Assignment) -> Mapping[Partition, int]:
    """Return the initial allowances; they are small if a slow sink may have choked earlier workers."""
    least = dict.fromkeys((each.partition for each in assignment.ranges), LEAST) if is_isolated(assignment) else {}
    return least | dict(assignment.allowances)
