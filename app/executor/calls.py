"""
Runs the calls of a task's lanes that may block on Kafka in threads, one at a time for each lane.

Meanwhile the task works on the other lanes. Steps of a lane with a running call are parked until the call ends. Nothing
waits for a hanging call, neither other lanes' calls nor the task's thread. If a call passes even its deadline, a
successor replaces its lane, and the call becomes an orphan.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from functools import partial

from app.errors import PartitionError
from app.executor.lane.lane import Lane
from app.executor.lane.states import Blocking, Ready
from app.watchdog import Deadline, Watchdog, in_time

Step = Callable[[Ready], None]
"""What a lane that accepts records does in the task's own thread."""

# How many calls run at once, not counting those that hang.
SIDE_BY_SIDE = 16
# How many steps may be parked.
MAX_PARKED = 8
# A call that takes longer hangs, and nothing waits for it. A commit that takes this long costs its lane the producer
# anyway (`app.kafka.writers`), so reading its partition again costs nothing extra. To measure how long the other lanes
# wait: python -m tests.chaos refusals "sink partition leaderless".
HANGS_SECONDS = 0.5
# More than a call takes, unless several of its requests time out one after the other.
CALL_SECONDS = 60.0
WAIT_SECONDS = 0.05
# How long to wait for an abandoned call to return.
RETURN_SECONDS = 0.5


class Call:
    """A call of a lane; it counts as hanging after `patience` seconds."""

    def __init__(self, lane: Lane, blocking: Blocking, patience: float) -> None:
        self.lane = lane
        self.blocking = blocking
        self.began: float | None = None
        """When a thread started it."""
        self.ended: Future[None] = Future()
        self.abandoned = False
        """Whether its result no longer counts."""
        self.deadline = Deadline()
        """When its current step must return."""
        self._patience = patience

    def hangs(self, now: float) -> bool:
        return now > self.ends_by(self._patience)

    def ends_by(self, seconds: float) -> float:
        """When it will have run for this many seconds; infinity if it has not started."""
        return math.inf if self.began is None else self.began + seconds


class Queue:
    """Runs calls in order, SIDE_BY_SIDE at once, plus any number of hanging ones."""

    def __init__(self, threads: Executor, run: Callable[[Call], None], clock: Callable[[], float]) -> None:
        self._threads = threads
        self._run = run
        self._clock = clock
        self._lock = threading.Lock()
        self.waiting: deque[Call] = deque()
        """The calls without a thread."""
        self._running: set[Call] = set()
        self._at_work = 0
        """The number of threads."""

    def add(self, call: Call) -> None:
        self.waiting.append(call)
        self.staff()

    def staff(self) -> None:
        """Start the threads that are needed, up to the limit."""
        with self._lock:
            idle = self._at_work - len(self._running)
            more = min(len(self.waiting) - idle, self._room())
            self._at_work += max(0, more)
        for _ in range(more):
            self._threads.submit(self._work)

    def _room(self) -> int:
        now = self._clock()
        return SIDE_BY_SIDE + sum(call.hangs(now) for call in self._running) - self._at_work

    def _work(self) -> None:
        call: Call | None = None
        while call := self._next(call):
            self._run(call)

    def _next(self, ended: Call | None) -> Call | None:
        """Return the next call; None if there is none, or if hanging calls have ended and left too many threads."""
        with self._lock:
            self._running.discard(ended)
            if not self.waiting or self._room() < 0:
                self._at_work -= 1
                return None
            call = self.waiting.popleft()
            call.began = self._clock()
            self._running.add(call)
            return call

    def clear(self) -> None:
        """End the waiting calls, none of which has begun."""
        with self._lock:
            while self.waiting:
                self.waiting.popleft().ended.set_result(None)


class Calls:
    """
    Runs the calls of lanes, and the steps of each lane in order.

    Lanes in trouble have a queue of their own: their next call may well hang again, and must not delay other lanes.

    Args:
        threads: a pool with two threads for each lane, one of them for an orphan.
        watchdog: ends the worker if a lane's successor hangs too.
        send_rest: sends what did not fit into a lane's queue.
    """

    def __init__(
        self,
        threads: Executor,
        clock: Callable[[], float],
        watchdog: Watchdog,
        send_rest: Callable[[Ready], Ready],
    ) -> None:
        self._send_rest = send_rest
        self._clock = clock
        self._watchdog = watchdog
        self._usual, self._troubled = Queue(threads, self._run, clock), Queue(threads, self._run, clock)
        self._calls: dict[Lane, Call] = {}
        self._parked: dict[Lane, list[Step]] = defaultdict(list)
        self._orphans: dict[Lane, Call] = {}
        """For each successor, the call that its predecessor left behind."""

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._calls

    @property
    def crowded(self) -> bool:
        """Whether calls of healthy lanes wait for a thread."""
        return bool(self._usual.waiting)

    @property
    def ends(self) -> list[Future[None]]:
        """The futures of all unsettled calls and orphans."""
        return [call.ended for call in [*self._calls.values(), *self._orphans.values()]]

    def start(self, lane: Lane, blocking: Blocking, patience: float = HANGS_SECONDS) -> None:
        """Start a call of a lane that has none; the lane's steps wait for it."""
        self._calls[lane] = call = Call(lane, blocking, patience)
        (self._troubled if lane.ledger.troubled else self._usual).add(call)

    def _run(self, call: Call) -> None:
        try:
            with call.deadline, in_time(CALL_SECONDS, "a call"):
                call.lane.run(call.blocking, self._clock)
            del call.blocking  # perhaps the last reference to a producer, whose end takes up to 0.13 s
            call.ended.set_result(None)
        except BaseException as error:  # noqa: BLE001  # the task's own thread raises it
            call.ended.set_exception(error)

    def attempt(self, lane: Lane, ready: Ready, step: Step) -> bool:
        """Run a step of one lane; return whether it succeeded. A lane's error never stops the others."""
        try:
            step(ready)
        except PartitionError as error:
            lane.give_up(error, self._clock())
            return False
        return True

    def step(self, lane: Lane, step: Step) -> None:
        """
        Run a step of a running lane, now or as soon as the lane's call has ended.

        If too many steps are parked, the task waits, so that it takes no more than it can write. It does not wait for
        hanging calls: their parked steps are dropped, and their partitions read again once the calls have ended.
        """
        call, ready = self._calls.get(lane), lane.running
        if ready is None:
            return
        if call is None:
            if self.attempt(lane, ready, step) and ready.writer.full:
                self.start(lane, partial(self._send_rest, ready))
        elif call.ended.done():
            self._settle(lane)
            self.step(lane, step)
        elif sum(map(len, self._parked.values())) < MAX_PARKED:
            self._parked[lane].append(step)
        elif hanging := [each for each in self._parked if self._hangs(self._calls[each])]:
            self._hold(hanging[0])
            self.step(lane, step)
        elif self._ends(call):
            self.step(lane, step)
        else:
            self._hold(lane)

    def _hold(self, lane: Lane) -> None:
        self._parked.pop(lane, None)
        lane.hold()

    def _hangs(self, call: Call) -> bool:
        hangs = call.abandoned or call.lane.ledger.troubled or call.hangs(self._clock())
        return hangs and not call.ended.done()

    def _ends(self, call: Call) -> bool:
        """Wait for a call; return whether it has ended, as opposed to hanging."""
        while not (call.ended.done() or self._hangs(call)):
            self._wait([call])
        return call.ended.done()

    def _settle(self, lane: Lane) -> None:
        self._calls.pop(lane).ended.result()
        for step in self._parked.pop(lane, ()):
            self.step(lane, step)

    def replace_overdue(self) -> list[Lane]:
        """
        Replace the lanes whose call has passed its deadline; return their successors.

        If a successor must be replaced too before the first orphan has returned, orphans would pile up. The process
        then ends, and a new one starts without any.
        """
        return [
            self._succeed(lane, what)
            for lane, call in list(self._calls.items())
            if (what := call.deadline.overdue) and not call.ended.done()
        ]

    def _succeed(self, lane: Lane, what: str) -> Lane:
        orphan = self._orphans.pop(lane, None)
        if orphan is not None and not orphan.ended.done():
            self._watchdog.bite()
        self._parked.pop(lane, None)
        successor = lane.successor(what, self._clock())
        self._orphans[successor] = self._calls.pop(lane)
        return successor

    def settle_ended(self) -> None:
        """Run the parked steps of all lanes whose call has ended."""
        self._usual.staff()
        self._troubled.staff()
        for lane in [lane for lane, call in self._calls.items() if call.ended.done()]:
            self._settle(lane)

    def settle_soon(self) -> None:
        """Give the calls that do not hang a moment to end."""
        self._wait([call for call in self._calls.values() if not self._hangs(call)])
        self.settle_ended()

    def settle(self) -> None:
        """Wait until only hanging calls are left."""
        self.settle_ended()
        while any(not self._hangs(call) for call in self._calls.values()):
            self.settle_soon()

    def settle_while_some_end(self, seconds: float) -> None:
        """Wait until no call is left, or none has ended for this many seconds."""
        until = self._clock() + seconds
        while (left := self._left()) and self._clock() < until:
            self._wait(left)
            if len(self._left()) < len(left):
                until = self._clock() + seconds
        self.settle_ended()

    def abandon(self, seconds: float) -> None:
        """Give up the calls that have run for this many seconds; their results no longer count."""
        self._parked.clear()
        until = self._clock() + seconds
        while any(self._clock() < min(until, call.ends_by(seconds)) for call in self._left()):
            self._wait(self._left())
        self._usual.clear()
        self._troubled.clear()
        left = self._left()
        for call in left:
            call.abandoned = True
            call.lane.abandon()
        self._wait(left, RETURN_SECONDS)
        self.settle_ended()

    def _left(self) -> list[Call]:
        return [call for call in self._calls.values() if not (call.ended.done() or call.abandoned)]

    def _wait(self, calls: Sequence[Call], seconds: float = WAIT_SECONDS) -> None:
        """Wait for these calls, but no longer than `seconds`; feed the watchdog meanwhile."""
        self._watchdog.feed()
        self._usual.staff()
        self._troubled.staff()
        wait([call.ended for call in calls], seconds)
