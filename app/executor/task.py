"""
One task of a round: cleanse the assigned source partitions until the deadline.

Open one writer per source partition, which fences earlier owners. *Then* read the committed offsets. Then consume,
parse, produce, and commit output, dead letters and offset together, until the deadline, the agreed end, or a fence.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from app.errors import NotUsable, Transient, Unreachable
from app.executor.clients import C, Clients
from app.executor.commits import SIDE_BY_SIDE, Commits
from app.executor.dead_letters import make_dead_letters
from app.executor.lane import Cleansed, Lane
from app.executor.output import Output
from app.executor.parse import parse
from app.model import Assignment, Outcome, Receipt
from app.records import Chunk, DeadLetter, Lines, offsets_of
from app.runtime import REAL, Runtime
from app.watchdog import Watchdog
from parsers.contract import Parsed, Parser

# Short, so that commits are punctual and a chunk of large records cannot grow without bound.
POLL_SECONDS = 0.05
# How soon a task without traffic notices that the driver has fenced its control partition.
HEARTBEAT_SECONDS = 1.0
# Much can be delivered between two commits of a lane; its memory is wanted earlier.
FREE_SECONDS = 0.5
# A record's own framing and its batch's header count against a topic's max.message.bytes too.
FRAMING_BYTES = 512


def run(
    assignment: Assignment, clients: Clients[C], parser: Parser, seconds: float, runtime: Runtime = REAL
) -> list[Receipt]:
    """Cleanse the assigned partitions for so many seconds; return one receipt each, of what is committed."""
    with Watchdog() as watchdog, _no_garbage_collection(), Task(assignment, clients, runtime, watchdog) as task:
        task.open()
        deadline = runtime.monotonic() + seconds  # opening hundreds of partitions must leave time for records
        while task.working and runtime.monotonic() < deadline:
            watchdog.feed()
            chunk = task.consumer.poll(POLL_SECONDS)
            task.catching_up = chunk is not None and chunk.full
            if chunk is not None:
                task.deliver(chunk, *parse(parser, chunk, task.output, task.max_line_bytes))
            task.keep_up()
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
        self.output = Output(config)
        self.max_line_bytes = config.sink.max_bytes - FRAMING_BYTES
        self.catching_up = False
        """Whether more records wait to be taken."""
        self._max_dead_letter_bytes = config.dead_letters.max_bytes - FRAMING_BYTES
        self._clock = runtime.monotonic
        self._watchdog = watchdog
        self._offsets = offsets = clients.offsets(self.consumer)
        self._lanes = {each.partition: Lane(each, clients, self.consumer, offsets) for each in assignment.ranges}
        self._control_lane = self._lanes[assignment.control_partition]
        self._threads = runtime.threads(min(SIDE_BY_SIDE, len(self._lanes)), "winnow-lane")
        self._commits = Commits(len(self._lanes), config.commit_seconds, self._threads, self._clock, watchdog)
        self._next_free = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop whatever is open: after an error nothing of it may count."""
        self._commits.wait_for_all()
        for lane in self._lanes.values():
            lane.finish()
        self._threads.shutdown()
        self._offsets.close()
        self.consumer.close()

    @property
    def working(self) -> bool:
        """Whether there is work left. A fence on one partition ends the whole task, cleanly for the others."""
        outcomes = [lane.outcome for lane in self._lanes.values()]
        return None in outcomes and Outcome.FENCED not in outcomes

    def open(self) -> None:
        """Open every lane side by side. The first chunk is committed at once: readers have waited long enough."""
        self._open(list(self._lanes.values()))

    def deliver(self, chunk: Chunk, parsed: Parsed, lines: Lines) -> None:
        """Hand each lane its part of a parsed chunk, in order; `lines` are its cleansed lines."""
        # Dead letters are made now, because a chunk's headers can be read only until the next poll.
        dead_letters = make_dead_letters(chunk, parsed, self._max_dead_letter_bytes)
        made = lines, dead_letters, parsed.reasons.to_pylist()
        for partition, begin, end in chunk.by_partition():
            lane = self._lanes[partition]
            self._commits.step(lane, partial(lane.take, _cleansed(lane, chunk, parsed, made, slice(begin, end))))
        for partition, position in chunk.ends:
            lane = self._lanes[partition]
            self._commits.step(lane, partial(lane.pass_over, position))
        for failure in chunk.failures:
            lane = self._lanes[failure.partition]
            self._commits.step(lane, partial(lane.give_up, failure, self._clock()))

    def keep_up(self) -> None:
        """Commit what is due, complete lanes that are at their end, and open again those whose back-off is over."""
        self._commits.settle_ended()
        now = self._clock()
        self._complete([lane for lane in self._lanes.values() if lane.running and lane.at_end])
        if self._commits.pass_is_due(now, catching_up=self.catching_up):
            self._commits.start_pass(self._lanes.values(), now)
        self._free(now)
        if self._owes_heartbeat(now):
            self._commits.start([self._control_lane])
        self._open([lane for lane in self._lanes.values() if self._opens_again(lane, now)])

    def _complete(self, ended: Sequence[Lane]) -> None:
        self._commits.start(lane for lane in [self._commits.settle(each) for each in ended] if lane.dirty)
        for lane in ended:
            if self._commits.settle(lane).running:
                lane.finish()

    def _free(self, now: float) -> None:
        if now < self._next_free:
            return
        self._next_free = now + FREE_SECONDS
        for lane in self._lanes.values():
            if lane.running and lane not in self._commits:
                self._commits.attempt(lane, lane.free)

    def _opens_again(self, lane: Lane, now: float) -> bool:
        return lane not in self._commits and lane.retry_at is not None and lane.retry_at <= now

    def _owes_heartbeat(self, now: float) -> bool:
        lane = self._control_lane
        return lane not in self._commits and lane.running and now - lane.committed_at >= HEARTBEAT_SECONDS

    def finish(self) -> list[Receipt]:
        """Commit what is open, renew the offsets of idle partitions, and return the receipts."""
        self._commits.settle_all()
        self._commits.start(lane for lane in self._lanes.values() if lane.running)
        self._commits.settle_all()
        for lane in self._lanes.values():
            lane.finish()
        return [lane.receipt() for lane in self._lanes.values()]

    def _open(self, lanes: Sequence[Lane]) -> None:
        """Fence first, read the committed offsets after that, decide then."""
        self._watchdog.feed()
        opened = [lane for lane, ok in zip(lanes, self._commits.side_by_side(lanes, Lane.open), strict=True) if ok]
        if not opened:
            return
        self._watchdog.feed()
        partitions = [lane.partition for lane in opened]
        try:
            self.consumer.connect(partitions)
            committed = self._offsets.load(partitions, stable=True)
        except (Transient, Unreachable, NotUsable) as error:
            for lane in opened:
                lane.give_up(Transient(lane.partition, f"its committed offset cannot be read: {error}"), self._clock())
            return
        begun = self._commits.side_by_side(
            opened, lambda lane: lane.begin(committed.get(lane.partition), self._clock())
        )
        for lane, ok in zip(opened, begun, strict=True):
            if ok:
                lane.read()


def _cleansed(
    lane: Lane,
    chunk: Chunk,
    parsed: Parsed,
    made: tuple[Lines, Sequence[DeadLetter], Sequence[str]],
    rows: slice,
) -> Cleansed:
    """Return a lane's part of what a chunk was made into: these rows, or those up to the lane's agreed end."""
    begin, end = rows.start, rows.stop
    position = int(chunk.offsets[end - 1]) + 1
    if lane.range.end is not None and position > lane.range.end:
        end = begin + int(np.searchsorted(chunk.offsets[begin:end], lane.range.end))
        position = lane.range.end
    good, after_good = np.searchsorted(parsed.rows, (begin, end)).tolist()
    bad, after_bad = np.searchsorted(parsed.reject_rows, (begin, end)).tolist()
    lines, dead_letters, reasons = made
    return Cleansed(
        records=end - begin,
        bytes_in=_size(offsets_of(chunk.values), begin, end),
        lines=lines.part(good, after_good),
        bytes_out=_size(offsets_of(lines.values), good, after_good),
        dead_letters=dead_letters[bad:after_bad],
        reasons=reasons[bad:after_bad],
        position=position,
    )


def _size(offsets: NDArray[np.int32], begin: int, end: int) -> int:
    return int(offsets[end] - offsets[begin])
