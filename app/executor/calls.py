"""
The calls of a task's lanes that may wait for Kafka: they run in threads, one at a time for each lane.

The task goes on for the other lanes. A step of a lane that waits is parked, and taken as soon as its call has ended.
Where a call hangs, nothing waits for it: neither the other lanes' calls, nor the task's own thread. Where it does not
even return in its time, not its own lane either: a successor goes on, and the call is an orphan.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from functools import partial

from app.errors import PartitionError
from app.executor.lane import Lane
from app.watchdog import Deadline, Watchdog, in_time

Step = Callable[[], None]

# How many calls run at once; a call that hangs does not count.
SIDE_BY_SIDE = 16
# How many steps may wait for the calls of their lanes.
MAX_PARKED = 8
# A call that takes longer hangs: nothing waits for it any more. A commit that takes so long costs its lane the producer
# in any case (`app.kafka.writers`), so to read its partition again from there costs nothing more. How long the other
# lanes wait for one that hangs: python -m tests.chaos refusals "sink partition leaderless".
HANGS_SECONDS = 0.5
# More than the sum of the timeouts in any call of a lane.
CALL_SECONDS = 60.0
WAIT_SECONDS = 0.05
# What an abandoned call may still need to return.
RETURN_SECONDS = 0.5


class Call:
    """
    A call of a lane.

    Args:
        lane: which lane.
        step: what is done.
        patience: how many seconds it may take before it counts as hanging.
    """

    def __init__(self, lane: Lane, step: Step, patience: float) -> None:
        self.lane = lane
        self.step = step
        self.began: float | None = None
        """When a thread took it up."""
        self.ended: Future[bool] = Future()
        """Whether it succeeded."""
        self.abandoned = False
        """Whether nobody waits for it any more."""
        self.deadline = Deadline()
        """By when what it does must return."""
        self._patience = patience

    def hangs(self, now: float) -> bool:
        """Whether it has taken longer than it should."""
        return now > self.ends_by(self._patience)

    def ends_by(self, seconds: float) -> float:
        """When it will have taken so many seconds; never, before a thread has taken it up."""
        return math.inf if self.began is None else self.began + seconds


class Queue:
    """Runs calls in order, SIDE_BY_SIDE at once, and beside them any number that hang."""

    def __init__(self, threads: Executor, run: Callable[[Call], None], clock: Callable[[], float]) -> None:
        self._threads = threads
        self._run = run
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[Call] = deque()
        self._running: set[Call] = set()
        self._at_work = 0
        """How many threads there are."""

    @property
    def waits(self) -> bool:
        """Whether calls wait for a thread."""
        return bool(self._waiting)

    def add(self, call: Call) -> None:
        """Run a call as soon as it is its turn."""
        self._waiting.append(call)
        self.staff()

    def staff(self) -> None:
        """Have as many threads at work as there may be and as are needed."""
        with self._lock:
            idle = self._at_work - len(self._running)
            more = min(len(self._waiting) - idle, self._room())
            self._at_work += max(0, more)
        for _ in range(more):
            self._threads.submit(self._work)

    def _room(self) -> int:
        now = self._clock()
        return SIDE_BY_SIDE + sum(call.hangs(now) for call in self._running) - self._at_work

    def _work(self) -> None:
        call = self._next(None)
        while call is not None:
            self._run(call)
            call = self._next(call)

    def _next(self, ended: Call | None) -> Call | None:
        """Return the next call; None if there is none, or if too many threads are left of a time when calls hung."""
        with self._lock:
            self._running.discard(ended)
            if not self._waiting or self._room() < 0:
                self._at_work -= 1
                return None
            call = self._waiting.popleft()
            call.began = self._clock()
            self._running.add(call)
            return call

    def clear(self) -> None:
        """Let the calls that wait fail."""
        with self._lock:
            while self._waiting:
                self._waiting.popleft().ended.set_result(False)


class Calls:
    """
    Runs the calls of lanes, and takes the steps of each lane in order.

    Lanes in trouble have a queue of their own, so that they hold up no others: their next call may well hang again.

    Args:
        threads: a pool with two threads for each lane, of which an orphan may have one.
        clock: a monotonic clock in seconds.
        watchdog: ends the worker if a lane's successor is no better off.
        send_rest: sends what a lane has taken and found no room for.
    """

    def __init__(
        self,
        threads: Executor,
        clock: Callable[[], float],
        watchdog: Watchdog,
        send_rest: Callable[[Lane], None],
    ) -> None:
        self._send_rest = send_rest
        self._clock = clock
        self._watchdog = watchdog
        self._usual, self._troubled = Queue(threads, self._run, clock), Queue(threads, self._run, clock)
        self._calls: dict[Lane, Call] = {}
        self._parked: dict[Lane, list[Step]] = defaultdict(list)
        self._orphans: dict[Lane, Call] = {}
        """The call of its predecessor that each successor goes on without."""

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._calls

    @property
    def crowded(self) -> bool:
        """Whether calls of lanes that are well wait for a thread."""
        return self._usual.waits

    @property
    def ends(self) -> list[Future[bool]]:
        """The ends of all calls that are not settled, and of the orphans."""
        return [call.ended for call in [*self._calls.values(), *self._orphans.values()]]

    def start(self, lane: Lane, step: Step, patience: float = HANGS_SECONDS) -> None:
        """Start a call of a lane that has none; steps of the lane wait for it."""
        self._calls[lane] = call = Call(lane, step, patience)
        (self._troubled if lane.troubled else self._usual).add(call)

    def _run(self, call: Call) -> None:
        lane = call.lane
        try:
            with call.deadline, in_time(CALL_SECONDS, "a call"):
                done = self.attempt(lane, call.step)
                lane.discard()  # after an error, or because the lane was abandoned meanwhile
            call.ended.set_result(done)
        except BaseException as error:  # noqa: BLE001  # the task's own thread raises it
            call.ended.set_exception(error)

    def attempt(self, lane: Lane, step: Step) -> bool:
        """Take a step of one lane; return whether it succeeded. A lane's error never stops the others."""
        try:
            step()
        except PartitionError as error:
            lane.give_up(error, self._clock())
            return False
        return True

    def step(self, lane: Lane, step: Step) -> None:
        """
        Take a step of a running lane: now or, while a call of it runs, as soon as it has ended.

        If too many steps wait, the task waits too, so that it takes no more than it can write. It does not wait for
        calls that hang: their partitions are read on from there when they have ended.
        """
        call = self._calls.get(lane)
        if not lane.running:
            return
        if call is None:
            self._take(lane, step)
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

    def _take(self, lane: Lane, step: Step) -> None:
        if self.attempt(lane, step) and lane.full:
            self.start(lane, partial(self._send_rest, lane))

    def _hold(self, lane: Lane) -> None:
        self._parked.pop(lane, None)
        lane.hold()

    def _hangs(self, call: Call) -> bool:
        hangs = call.abandoned or call.lane.troubled or call.hangs(self._clock())
        return hangs and not call.ended.done()

    def _ends(self, call: Call) -> bool:
        """Wait for a call; return whether it has ended, rather than hangs."""
        while not (call.ended.done() or self._hangs(call)):
            self._wait([call])
        return call.ended.done()

    def _settle(self, lane: Lane) -> None:
        """Take in that a lane's call has ended, and take the steps that waited for it."""
        self._calls.pop(lane).ended.result()
        for step in self._parked.pop(lane, ()):
            self.step(lane, step)

    def replace_overdue(self) -> list[Lane]:
        """
        Let go of the lanes whose call does not return in its time; return their successors.

        Whoever succeeds a successor before the first orphan has returned would leave more and more of them: then the
        process ends, and another one begins without any.
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
        """Take the steps of all lanes whose call has ended."""
        self._usual.staff()
        self._troubled.staff()
        for lane in [lane for lane, call in self._calls.items() if call.ended.done()]:
            self._settle(lane)

    def settle_soon(self) -> None:
        """Give the calls that do not hang a moment to end."""
        self._wait([call for call in self._calls.values() if not self._hangs(call)])
        self.settle_ended()

    def settle(self) -> None:
        """Wait until no call is left, except those that hang."""
        self.settle_ended()
        while any(not self._hangs(call) for call in self._calls.values()):
            self.settle_soon()

    def settle_while_some_end(self, seconds: float) -> None:
        """Wait until no call is left, or none has ended for so many seconds."""
        until = self._clock() + seconds
        while (left := self._left()) and self._clock() < until:
            self._wait(left)
            if len(self._left()) < len(left):
                until = self._clock() + seconds
        self.settle_ended()

    def abandon(self, seconds: float) -> None:
        """Leave the calls alone that have run for so many seconds and do not end; what they do no longer counts."""
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
        """Wait until these calls have ended, for so long at most; the task is alive meanwhile."""
        self._watchdog.feed()
        self._usual.staff()
        self._troubled.staff()
        wait([call.ended for call in calls], seconds)
