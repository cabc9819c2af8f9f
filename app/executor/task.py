"""
One task of a round: cleanse the assigned source partitions until the deadline.

Open one writer per source partition, which fences earlier owners. *Then* read the committed offsets. Then consume,
parse, produce, and commit output, dead letters and offset together, until the deadline, the agreed end, or a fence.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from app.errors import NotUsable, PartitionError, Transient, Unreachable
from app.executor.calls import Calls
from app.executor.cleansed import Cleansed
from app.executor.clients import C, Clients
from app.executor.commits import Commits
from app.executor.dead_letters import make_dead_letter, make_dead_letters
from app.executor.lane import Lane
from app.executor.limits import Limits
from app.executor.parse import REFUSED, key_pattern, parse, refuse, with_headers, with_keys
from app.model import NO_EPOCH, Assignment, CommittedOffset, LastRead, Outcome, Partition, Receipt
from app.records import Chunk, DeadLetter, Lines, offsets_of
from app.runtime import REAL, Runtime
from app.watchdog import Watchdog
from parsers.contract import Parsed, Parser, Reject

# Short, so that commits are punctual and a chunk of large records cannot grow without bound.
POLL_SECONDS = 0.05
# How soon a task without traffic notices that the driver has fenced its control partition.
HEARTBEAT_SECONDS = 1.0
# How long opening may take before it counts as hanging: with hundreds of lanes on a busy broker it takes seconds. The
# task begins without the lanes that are late, once no other was opened for a second.
OPEN_SECONDS, LATE_SECONDS = 5.0, 1.0
# How long a call that hangs may hold up the end of a task.
LAST_SECONDS = 2.0
# Much can be delivered between two commits of a lane; its memory is wanted earlier.
FREE_SECONDS = 0.5


def run(
    assignment: Assignment, clients: Clients[C], parser: Parser, seconds: float, runtime: Runtime = REAL
) -> list[Receipt]:
    """Cleanse the assigned partitions for so many seconds; return one receipt each, of what is committed."""
    key = key_pattern(parser, assignment.config)
    with Watchdog() as watchdog, _no_garbage_collection(), Task(assignment, clients, runtime, watchdog) as task:
        task.open()
        deadline = runtime.monotonic() + seconds  # opening hundreds of partitions must leave time for records
        while task.working and runtime.monotonic() < deadline:
            watchdog.feed()
            chunk = task.consumer.poll(POLL_SECONDS)
            if chunk is not None:
                now = round(runtime.wall_clock() * 1000)
                parsed = parse(parser, chunk.values)
                chunk = with_keys(with_headers(chunk, assignment.config.flume_headers), parsed, key)
                task.deliver(chunk, refuse(parsed, chunk, task.sink, now), now)
            task.keep_up(catching_up=chunk is not None and chunk.full)
        return task.finish()


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """
    Leave memory to reference counts until the round is over.

    Every consumed message is a container to Python's collector, which would visit them all again and again: a fifth of
    the time. The flow makes no cycles. A user's parser that does pays with memory for a round, not more.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Task:
    """The lanes of one task: opens them, hands them their records, and ends them."""

    def __init__(self, assignment: Assignment, clients: Clients[C], runtime: Runtime, watchdog: Watchdog) -> None:
        config = assignment.config
        self.consumer = clients.consumer()
        self.sink = Limits.of(config.sink, config)
        self._dead_letters = Limits.of(config.dead_letters, config)
        self._clock = runtime.monotonic
        self._watchdog = watchdog
        self._offsets = offsets = clients.offsets(self.consumer)
        self._lanes = {
            each.partition: Lane(each, clients, self.consumer, offsets, config.owner) for each in assignment.ranges
        }
        self._threads = runtime.threads(2 * len(self._lanes) + 1, "winnow-lane")
        self._calls = Calls(self._threads, self._clock, watchdog)
        self._commits = Commits(len(self._lanes), config.commit_seconds, self._calls, self._clock)
        self._next_free = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop whatever is open: after an error nothing of it may count."""
        try:
            self._discard_all()
        finally:
            self._close()
            self._threads.shutdown(wait=False)

    def _discard_all(self) -> None:
        self._calls.abandon(LAST_SECONDS)
        for lane in self._free_lanes():
            lane.finish()
            self._calls.start(lane, lane.discard)
        self._calls.settle()
        self._calls.abandon(LAST_SECONDS)

    def _close(self) -> None:
        """Close the clients as soon as nobody uses them; earlier, librdkafka would crash the process."""

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
        """Whether there is work left. A fence on one partition ends the whole task, cleanly for the others."""
        outcomes = [lane.outcome for lane in self._lanes.values()]
        return None in outcomes and Outcome.FENCED not in outcomes

    def open(self) -> None:
        """
        Open every lane side by side: fence first, read the committed offsets after that, decide then.

        Lanes whose opening hangs follow later, as those do whose opening fails.
        """
        self._side_by_side(self._free_lanes(), Lane.open)
        opened = [lane for lane in self._free_lanes() if lane.opened]
        partitions = [lane.partition for lane in opened]
        try:
            self.consumer.connect(partitions)
            committed = self._committed(partitions)
        except PartitionError as error:
            for lane in opened:
                lane.give_up(Transient(lane.partition, error.cause), self._clock())
            return
        self._side_by_side(opened, lambda lane: lane.begin(committed.get(lane.partition), self._clock()))
        self._attend()

    def _side_by_side(self, lanes: Iterable[Lane], step: Callable[[Lane], None]) -> None:
        for lane in lanes:
            self._calls.start(lane, partial(step, lane), OPEN_SECONDS)
        self._calls.settle_while_some_end(LATE_SECONDS)

    def _open_again(self, lane: Lane) -> None:
        """Do the same for one lane, beside the flow."""
        if not lane.opened:
            lane.open()
        lane.begin(self._committed([lane.partition]).get(lane.partition), self._clock())

    def _committed(self, partitions: Sequence[Partition]) -> Mapping[Partition, CommittedOffset]:
        try:
            return self._offsets.load(partitions, stable=True)
        except (Unreachable, NotUsable) as error:
            raise Transient(partitions[0], f"its committed offset cannot be read: {error}") from error

    def _free_lanes(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane not in self._calls]

    def deliver(self, chunk: Chunk, parsed: Parsed, now: int) -> None:
        """Hand each lane its part of a parsed chunk, in order; `now` is in milliseconds since the epoch."""
        # Dead letters are made now, because a chunk's headers can be read only until the next poll.
        rejects = make_dead_letters(chunk, parsed, self._dead_letters, now), parsed.reasons.to_pylist()
        for partition, begin, end in chunk.by_partition():
            lane = self._lanes[partition]
            cleansed = _cleansed(lane, chunk, parsed, rejects, slice(begin, end))
            if lane.refusal is not None and cleansed.records:
                reject = Reject(begin, REFUSED, lane.refusal)
                cleansed = cleansed.rejected(make_dead_letter(chunk, reject, self._dead_letters, now), REFUSED)
            self._calls.step(lane, partial(lane.take, cleansed))
        for partition, position in chunk.ends:
            lane = self._lanes[partition]
            self._calls.step(lane, partial(lane.pass_over, position))
        for failure in chunk.failures:
            lane = self._lanes[failure.partition]
            self._calls.step(lane, partial(lane.give_up, failure, self._clock()))

    def keep_up(self, *, catching_up: bool) -> None:
        """
        Commit what is due, complete lanes that are at their end, and open again those whose back-off is over.

        Args:
            catching_up: whether more records wait to be taken.
        """
        self._calls.settle_ended()
        self._lanes |= {lane.partition: lane for lane in self._calls.replace_overdue()}
        now = self._clock()
        if self._commits.pass_is_due(now, catching_up=catching_up):
            self._commits.start_pass(self._lanes.values(), now)
        self._attend()
        self._free(now)
        if self._owes_heartbeat(now):
            self._commits.start([self._control_lane])

    def _attend(self) -> None:
        """Take care of the lanes that do not just go on."""
        for lane in [lane for lane in self._lanes.values() if not lane.goes_on]:
            if lane not in self._calls:
                self._attend_to(lane, self._clock())

    def _attend_to(self, lane: Lane, now: float) -> None:
        lane.read()
        if lane.spent:
            self._calls.start(lane, lane.discard)
        elif lane.outcome is not None:
            return
        elif lane.opened or lane.reopens(now):
            self._calls.start(lane, partial(self._open_again, lane), OPEN_SECONDS)
        elif (lane.at_end or lane.at_stop) and lane.dirty:
            self._commits.start([lane])
        elif lane.at_end and lane.ready:
            lane.finish()

    def _free(self, now: float) -> None:
        if now < self._next_free:
            return
        self._next_free = now + FREE_SECONDS
        for lane in self._lanes.values():
            if lane.running and lane not in self._calls:
                self._calls.attempt(lane, lane.free)

    @property
    def _control_lane(self) -> Lane:
        """The lane by which the driver ends the task: its first one that does not hang, as the driver sees it too."""
        lanes = self._lanes.values()
        return next((lane for lane in lanes if lane.ready and not lane.troubled), next(iter(lanes)))

    def _owes_heartbeat(self, now: float) -> bool:
        lane = self._control_lane
        return lane.ready and now - lane.committed_at >= HEARTBEAT_SECONDS

    def finish(self) -> list[Receipt]:
        """
        Commit what is open, renew the offsets of idle partitions, and return the receipts.

        A lane that hangs comes last, and does not hold up the report for long.
        """
        self._calls.settle()
        self._commits.start(lane for lane in self._lanes.values() if lane.ready)
        self._calls.settle()
        self._calls.abandon(LAST_SECONDS)
        for lane in self._free_lanes():
            lane.finish()
        return [lane.receipt() for lane in self._lanes.values()]


def _cleansed(
    lane: Lane,
    chunk: Chunk,
    parsed: Parsed,
    rejects: tuple[Sequence[DeadLetter], Sequence[str]],
    rows: slice,
) -> Cleansed:
    """Return a lane's part of a parsed chunk: these rows, or those before the lane's stop."""
    begin, end, stop = rows.start, rows.stop, lane.stop
    position = int(chunk.offsets[end - 1]) + 1
    if stop is not None and position > stop:
        end = begin + int(np.searchsorted(chunk.offsets[begin:end], stop))
        position = stop
    good, after_good = np.searchsorted(parsed.rows, (begin, end)).tolist()
    bad, after_bad = np.searchsorted(parsed.reject_rows, (begin, end)).tolist()
    dead_letters, reasons = rejects
    values = parsed.values.slice(good, after_good - good)
    return Cleansed(
        records=end - begin,
        bytes_in=_size(offsets_of(chunk.values), begin, end),
        lines=Lines(values, parsed.rows[good:after_good], chunk.keys_of_lines, chunk.timestamps, chunk.kept),
        bytes_out=_size(offsets_of(parsed.values), good, after_good),
        dead_letters=dead_letters[bad:after_bad],
        reasons=reasons[bad:after_bad],
        position=position,
        read=_last_read(chunk.epoch_of(rows.stop - 1), position),
    )


def _last_read(epoch: int, position: int) -> LastRead | None:
    return LastRead(position, epoch) if epoch != NO_EPOCH else None


def _size(offsets: NDArray[np.int32], begin: int, end: int) -> int:
    return int(offsets[end] - offsets[begin])
