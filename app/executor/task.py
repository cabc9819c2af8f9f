"""
One task of a round: cleanse the assigned source partitions until the deadline.

Open one writer per source partition, which fences earlier owners; *then* read the committed offsets; then consume,
parse, produce, and commit output, dead letters and offset together, until the deadline, the agreed end, or a fence.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Self

import numpy as np

from app.errors import PartitionError
from app.executor.clients import C, Clients
from app.executor.dead_letters import make_dead_letters
from app.executor.lane import Lane
from app.executor.parse import parse
from app.model import Assignment, Outcome, Receipt
from app.records import Chunk, DeadLetter, Lines
from app.watchdog import Watchdog
from parsers.contract import Parsed, Parser

# Short, so that commits are punctual and a chunk of large records cannot grow without bound.
POLL_SECONDS = 0.05
# How soon a task without traffic hears that the driver has fenced its control_partition.
HEARTBEAT_SECONDS = 1.0
# A pass over hundreds of lanes takes seconds and would leave no time for records. Where these come as fast as they can
# be taken, nobody waits for the last one: commits may take a tenth of the time. Otherwise half of it, to be punctual.
PACE_BEHIND, PACE = 10.0, 2.0
LONGEST_PAUSE = 10.0
# Between two commits of a lane much can be delivered; its memory is wanted before.
FREE_SECONDS = 0.5
# How many parts of chunks may wait for the commits of their lanes.
MAX_PARKED = 8
# A record's own framing and its batch's header count against a topic's max.message.bytes too.
FRAMING_BYTES = 512
SIDE_BY_SIDE = 16


def run(
    assignment: Assignment,
    clients: Clients[C],
    parser: Parser,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> list[Receipt]:
    """Cleanse the assigned partitions for so many seconds; return one receipt each, of what is committed."""
    with Watchdog() as watchdog, _no_garbage_collection(), Task(assignment, clients, clock, watchdog) as task:
        task.open()
        deadline = clock() + seconds  # to open hundreds of partitions takes long, and would leave no time for records
        while task.working and clock() < deadline:
            watchdog.feed()
            chunk = task.consumer.poll(POLL_SECONDS)
            task.behind = chunk is not None and chunk.full
            if chunk is not None:
                task.deliver(chunk, parse(parser, chunk.values, chunk.keys, task.max_sink_bytes))
            task.keep_up()
        return task.finish()


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """
    Leave memory to reference counts until the round is over.

    Every consumed message is a container to Python's collector, which would look at them all again and again: a fifth
    of the time. The flow makes no cycles; a user's parser that does pays with memory for a round, not more.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Task:
    """The lanes of one task, and when each is opened, committed and finished."""

    def __init__(
        self, assignment: Assignment, clients: Clients[C], clock: Callable[[], float], watchdog: Watchdog
    ) -> None:
        task_config = assignment.config
        self.consumer = clients.consumer()
        self.max_sink_bytes = task_config.sink.max_bytes - FRAMING_BYTES
        self._max_dead_letter_bytes = task_config.dead_letters.max_bytes - FRAMING_BYTES
        self._clock = clock
        self._watchdog = watchdog
        self._commit_seconds = task_config.commit_seconds
        self._lanes = {
            offset_range.partition: Lane(offset_range, clients, self.consumer) for offset_range in assignment.ranges
        }
        self._control_lane = self._lanes[assignment.control_partition]
        self._threads = ThreadPoolExecutor(min(SIDE_BY_SIDE, len(self._lanes)), "winnow-lane")
        self._next_commit = 0.0
        self._pass_began = self._pass_took = self._next_free = 0.0
        self.behind = False
        """Whether records wait to be taken."""
        self._commits: dict[Lane, Future[bool]] = {}  # under way
        self._parked: dict[Lane, list[Callable[[], None]]] = defaultdict(list)  # steps of lanes that commit

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop whatever is open: after an error nothing of it may count."""
        self._wait(*self._commits.values())
        for lane in self._lanes.values():
            lane.finish()
        self._threads.shutdown()
        self.consumer.close()

    @property
    def working(self) -> bool:
        """Whether there is work left: a fence on one partition ends the whole task, cleanly for the others."""
        outcomes = [lane.outcome for lane in self._lanes.values()]
        return None in outcomes and Outcome.FENCED not in outcomes

    def open(self) -> None:
        """Open every lane side by side. The first chunk will be committed at once: readers have waited long enough."""
        self._open(list(self._lanes.values()))

    def deliver(self, chunk: Chunk, parsed: Parsed) -> None:
        """Hand each lane its part of a parsed chunk, in order."""
        # made now: a chunk's headers can be read until the next poll
        rejects, reasons = make_dead_letters(chunk, parsed, self._max_dead_letter_bytes), parsed.reasons.to_pylist()
        for partition, begin, end in chunk.stretches():
            lane = self._lanes[partition]
            self._step(lane, self._parcel(lane, chunk, parsed, (rejects, reasons), (begin, end)))
        for partition, position in chunk.ends:
            self._step(self._lanes[partition], partial(self._lanes[partition].pass_over, position))
        for failure in chunk.failures:
            lane = self._lanes[failure.partition]
            self._step(lane, partial(lane.give_up, failure, self._clock()))

    def _parcel(
        self,
        lane: Lane,
        chunk: Chunk,
        parsed: Parsed,
        rejects: tuple[Sequence[DeadLetter], Sequence[str]],
        rows: tuple[int, int],
    ) -> Callable[[], None]:
        """Make what gives a lane what became of these rows, from one up to another, or up to its agreed end."""
        begin, end = rows
        position = int(chunk.offsets[end - 1]) + 1
        if lane.offset_range.end is not None and position > lane.offset_range.end:
            end = begin + int(np.searchsorted(chunk.offsets[begin:end], lane.offset_range.end))
            position = lane.offset_range.end
        good, behind_good = np.searchsorted(parsed.rows, (begin, end)).tolist()
        bad, behind_bad = np.searchsorted(parsed.reject_rows, (begin, end)).tolist()
        lines = Lines(
            values=parsed.values.slice(good, behind_good - good),
            rows=parsed.rows[good:behind_good],
            keys=chunk.keys,
            timestamps=chunk.timestamps,
        )
        buried, reasons = rejects
        mine = buried[bad:behind_bad]
        return partial(lane.take, end - begin, lines, mine, reasons[bad:behind_bad], position)

    def _step(self, lane: Lane, step: Callable[[], None]) -> None:
        """Take a step of a running lane: now or, while it commits, as soon as it has; the others go on meanwhile."""
        commit = self._commits.get(lane)
        if commit and not commit.done() and sum(map(len, self._parked.values())) < MAX_PARKED:
            self._parked[lane].append(step)
        elif self._settled(lane).running:
            self._attempt(lane, step)

    def keep_up(self) -> None:
        """Commit what is due, complete lanes that are at their end, and open again those whose back-off is over."""
        self._settle_done()
        now = self._clock()
        ended = [self._settled(lane) for lane in self._lanes.values() if lane.running and lane.at_end]
        self._commit(lane for lane in ended if lane.dirty)
        for lane in ended:
            if self._settled(lane).running:
                lane.finish()
        if self._is_due(now):
            self._pass_began, self._pass_took = now, 0.0
            self._next_commit = now + self._commit_seconds
            # one that hangs in its commit holds up no other
            self._commit(lane for lane in self._lanes.values() if lane.dirty and lane not in self._commits)
        if now >= self._next_free:
            self._next_free = now + FREE_SECONDS
            for lane in self._lanes.values():
                if lane.running and lane not in self._commits:
                    self._attempt(lane, lane.free)
        if self._owes_heartbeat(now):
            self._commit([self._control_lane])
        self._open([lane for lane in self._lanes.values() if self._opens_again(lane, now)])

    def _is_due(self, now: float) -> bool:
        """Tell whether to commit all lanes: the interval is over, and after a long pass some more."""
        if now < self._next_commit or len(self._commits) > SIDE_BY_SIDE:
            return False
        wait(self._commits.values(), POLL_SECONDS)
        self._settle_done()
        # a few lanes' pass is only slow when the broker is, and readers would wait ten times as long
        catching_up = self.behind and len(self._lanes) > SIDE_BY_SIDE
        pause = (PACE_BEHIND if catching_up else PACE) * self._pass_took
        return now >= self._pass_began + min(pause, self._pass_took + LONGEST_PAUSE)

    def _opens_again(self, lane: Lane, now: float) -> bool:
        return lane not in self._commits and lane.retry_at is not None and lane.retry_at <= now

    def _owes_heartbeat(self, now: float) -> bool:
        control_partition = self._control_lane
        return (
            control_partition not in self._commits
            and control_partition.running
            and now - control_partition.committed_at >= HEARTBEAT_SECONDS
        )

    def finish(self) -> list[Receipt]:
        """Commit what is open, renew the offsets of partitions that were idle, and report."""
        self._settle()
        self._commit(lane for lane in self._lanes.values() if lane.running)
        self._settle()
        for lane in self._lanes.values():
            lane.finish()
        return [lane.receipt() for lane in self._lanes.values()]

    def _open(self, lanes: Sequence[Lane]) -> None:
        """Fence first, read the committed offsets after that, decide then."""
        self._watchdog.feed()
        opened = [lane for lane, ok in zip(lanes, self._side_by_side(lanes, self._opens), strict=True) if ok]
        if not opened:
            return
        self._watchdog.feed()
        try:
            committed = self.consumer.committed(lane.partition for lane in opened)
        except PartitionError as error:
            for lane in opened:
                lane.give_up(type(error)(lane.partition, error.what), self._clock())
            return
        begun = self._side_by_side(
            opened, lambda lane: self._attempt(lane, lambda: lane.begin(committed[lane.partition], self._clock()))
        )
        for lane, ok in zip(opened, begun, strict=True):
            if ok:
                lane.read()

    def _opens(self, lane: Lane) -> bool:
        return self._attempt(lane, lane.open)

    def _commit(self, lanes: Iterable[Lane]) -> None:
        """
        Start committing these lanes side by side.

        Records are polled, parsed and sent for other lanes meanwhile; whatever touches a lane lets it settle first.
        """
        self._watchdog.feed()
        now = self._clock()
        self._commits |= {lane: self._threads.submit(self._commits_lane, lane, now) for lane in lanes}

    def _commits_lane(self, lane: Lane, began: float) -> bool:
        committed = self._attempt(lane, lambda: lane.commit(self._clock()))
        self._pass_took = max(self._pass_took, self._clock() - began)
        return committed

    def _settled(self, lane: Lane) -> Lane:
        """Wait for a lane's commit, if one is under way, and take the steps that have waited for it."""
        if commit := self._commits.pop(lane, None):
            self._wait(commit)
            commit.result()
            for step in self._parked.pop(lane, ()):
                if lane.running:
                    self._attempt(lane, step)
        return lane

    def _settle_done(self) -> None:
        for lane in [lane for lane, commit in self._commits.items() if commit.done()]:
            self._settled(lane)

    def _settle(self) -> None:
        """Wait for the commits that are under way."""
        for lane in list(self._commits):
            self._settled(lane)

    def _side_by_side(self, lanes: Sequence[Lane], step: Callable[[Lane], bool]) -> list[bool]:
        """Take a step of each lane, in threads; tell which succeeded."""
        steps = [self._threads.submit(step, lane) for lane in lanes]
        self._wait(*steps)
        return [each.result() for each in steps]

    def _wait(self, *steps: Future[bool]) -> None:
        """Wait for steps of lanes, and end the worker if one of them hangs."""
        while wait(steps, POLL_SECONDS).not_done:
            self._watchdog.look()

    def _attempt(self, lane: Lane, step: Callable[[], None]) -> bool:
        """Take a step of one lane; its trouble is its own and never stops the others."""
        try:
            step()
        except PartitionError as error:
            lane.give_up(error, self._clock())
            return False
        return True
