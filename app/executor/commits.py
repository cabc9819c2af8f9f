"""
When a task's lanes commit, and what waits for them meanwhile.

Commits run side by side in threads, because their calls wait for Kafka and release the interpreter's lock. The task
goes on for the other lanes. A step of a lane that commits is parked, and taken as soon as its commit has ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, wait
from functools import partial

from app.errors import PartitionError
from app.executor.lane import Lane
from app.watchdog import Watchdog

# A pass over hundreds of lanes takes seconds and would leave no time for records. While records arrive as fast as the
# task takes them, nobody waits for the last one, and commits take a tenth of the time. Otherwise they take up to half
# of it, so that they are punctual.
PACE_CATCHING_UP, PACE = 10.0, 2.0
MAX_PAUSE_SECONDS = 10.0
# How many steps may wait for the commits of their lanes.
MAX_PARKED = 8
SIDE_BY_SIDE = 16
WAIT_SECONDS = 0.05


class Commits:
    """
    Commits lanes side by side, and takes the steps of each lane in order.

    Args:
        lanes: how many lanes the task has.
        interval: seconds between two passes over all lanes.
        threads: a pool of up to SIDE_BY_SIDE threads.
        clock: a monotonic clock in seconds.
        watchdog: ends the worker if a step of a lane hangs.
    """

    def __init__(
        self, lanes: int, interval: float, threads: Executor, clock: Callable[[], float], watchdog: Watchdog
    ) -> None:
        self._lanes = lanes
        self._interval = interval
        self._threads = threads
        self._clock = clock
        self._watchdog = watchdog
        self._next_pass = self._pass_began = self._pass_took = 0.0
        self._running: dict[Lane, Future[bool]] = {}
        self._parked: dict[Lane, list[Callable[[], None]]] = defaultdict(list)

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._running

    def start(self, lanes: Iterable[Lane]) -> None:
        """Start committing these lanes side by side; whatever touches one of them settles it first."""
        self._watchdog.feed()
        began = self._clock()
        self._running |= {lane: self._threads.submit(self._commit, lane, began) for lane in lanes}

    def _commit(self, lane: Lane, began: float) -> bool:
        committed = self.attempt(lane, lambda: lane.commit(self._clock()))
        # An outage makes no pass slow, and a commit that outlives its pass does not slow down the next one.
        if committed and began >= self._pass_began:
            self._pass_took = max(self._pass_took, self._clock() - began)
        return committed

    def start_pass(self, lanes: Iterable[Lane], now: float) -> None:
        """Start committing all lanes that have something to commit; one that hangs in its commit is left out."""
        self._pass_began, self._pass_took = now, 0.0
        self._next_pass = now + self._interval
        self.start(lane for lane in lanes if lane.dirty and lane not in self._running)

    def pass_is_due(self, now: float, *, catching_up: bool) -> bool:
        """
        Return whether to commit all lanes: the interval is over and, after a slow pass, a longer pause.

        A pass over a few lanes is slow only when the broker is; readers would wait ten times as long.
        """
        if now < self._next_pass or len(self._running) > SIDE_BY_SIDE:
            return False
        wait(self._running.values(), WAIT_SECONDS)
        self.settle_ended()
        pace = PACE_CATCHING_UP if catching_up and self._lanes > SIDE_BY_SIDE else PACE
        pause = min(pace * self._pass_took, self._pass_took + MAX_PAUSE_SECONDS)
        return now >= self._pass_began + pause

    def step(self, lane: Lane, step: Callable[[], None]) -> None:
        """Take a step of a running lane: now or, while it commits, as soon as it has."""
        commit = self._running.get(lane)
        if commit and not commit.done() and sum(map(len, self._parked.values())) < MAX_PARKED:
            self._parked[lane].append(step)
        elif self.settle(lane).running:
            self.attempt(lane, step)

    def settle(self, lane: Lane) -> Lane:
        """Wait for the lane's commit, if one is running, and take the steps that waited for it."""
        if commit := self._running.pop(lane, None):
            self._wait(commit)
            commit.result()
            for step in self._parked.pop(lane, ()):
                if lane.running:
                    self.attempt(lane, step)
        return lane

    def settle_ended(self) -> None:
        """Take the steps of all lanes whose commit has ended."""
        for lane in [lane for lane, commit in self._running.items() if commit.done()]:
            self.settle(lane)

    def settle_all(self) -> None:
        """Wait for all commits that are running."""
        for lane in list(self._running):
            self.settle(lane)

    def wait_for_all(self) -> None:
        """Wait for all commits that are running, without taking another step."""
        self._wait(*self._running.values())

    def side_by_side(self, lanes: Sequence[Lane], step: Callable[[Lane], None]) -> list[bool]:
        """Take a step of each lane in threads; return which succeeded."""
        steps = [self._threads.submit(self.attempt, lane, partial(step, lane)) for lane in lanes]
        self._wait(*steps)
        return [each.result() for each in steps]

    def attempt(self, lane: Lane, step: Callable[[], None]) -> bool:
        """Take a step of one lane; return whether it succeeded. A lane's error never stops the others."""
        try:
            step()
        except PartitionError as error:
            lane.give_up(error, self._clock())
            return False
        return True

    def _wait(self, *steps: Future[bool]) -> None:
        """Wait for steps of lanes, and end the worker if one of them hangs."""
        while wait(steps, WAIT_SECONDS).not_done:
            self._watchdog.look()
