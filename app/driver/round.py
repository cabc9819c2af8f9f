"""
One round: tasks run until its deadline while the plan is good, and are ended in steps when it is not.

What its failure tells about the next one is kept in `Patience` and `Suspects`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor

from app.driver.clients import Fence, RunningRound
from app.driver.starting_offsets import Offsets
from app.driver.stop import Stop, Stopped
from app.driver.tracker import StatusTracker
from app.driver.workload import Workload
from app.errors import NotAllowed
from app.model import Assignment, Partition
from app.runtime import Runtime, Timings
from app.status.snapshot import Ending

# How many times as long a round may take at most after rounds whose tasks did not report.
MOST_PATIENCE = 16
# More records that kill or hang a parser may follow one. The longest round takes this long, too.
SUSPECT_SECONDS = 600.0


class Round:
    """
    Watches a running round to its end.

    Args:
        fence: ends tasks; None without transactions.
        checks: a single-threaded pool for checks that ask Kafka.
    """

    def __init__(
        self,
        running: RunningRound,
        assignments: Sequence[Assignment],
        *,
        fence: Fence | None,
        stop: Stop,
        tracker: StatusTracker,
        runtime: Runtime,
        checks: Executor,
    ) -> None:
        self._running = running
        self._assignments = assignments
        self._partitions = [each.partition for assignment in assignments for each in assignment.ranges]
        self._fence = fence
        self._stop = stop
        self._tracker = tracker
        self._clock = runtime.monotonic
        self._timings = runtime.timings
        self._overrun = overrun(assignments, runtime.timings)
        self._checks = checks
        self.fenced: set[Partition] = set()
        """The partitions fenced to end the round."""
        self.reached = True
        """Whether the last fence reached Kafka."""
        self.tasks_to_blame = True
        """Whether missing receipts are the tasks' fault rather than a stop's, a lost executor's or Kafka's."""

    def watch(self, needs_rebalance: Callable[[], str], every: float) -> bool:
        """
        Wait for the round's end, or end it early if necessary; return whether tasks had to be killed.

        Every so many seconds, `needs_rebalance` returns why the round must end; empty if it need not.
        """
        began = self._clock()
        overdue = began + self._assignments[0].seconds + self._overrun
        next_check, lost = began + every, 0
        while not self._ends_or_stops_within(self._timings.watch):
            self._tracker.leaving(self._stop.leaving)
            if self._running.lost_tasks > lost:
                lost = self._running.lost_tasks
                self._tracker.tasks_lost(lost)
            if self._running.starved:
                self.tasks_to_blame = False
                return self._end(Ending.STARVED, control_seconds=self._timings.control_fence)
            if self._clock() > overdue:
                return self._end(Ending.OVERDUE)
            if self._fence is not None and self._clock() > next_check:
                if why := self._unless_stopped(needs_rebalance):
                    return self._end(Ending.REBALANCE, why, self._overrun)
                next_check = self._clock() + every
        if self._stop.requested and not self._running.wait(0):
            self._tracker.stopping(self._stop.cause)
            self.tasks_to_blame = False
            return self._end(Ending.STOPPED, self._stop.cause, self._timings.control_fence)
        return False

    def _unless_stopped(self, check: Callable[[], str]) -> str:
        """Return the check's result; empty if a stop is requested first, because Kafka may take long to answer."""
        try:
            return self._stop.result(self._checks.submit(check))
        except Stopped:
            return ""

    def _ends_or_stops_within(self, seconds: float) -> bool:
        until = self._clock() + seconds
        # Look at least once: the round may have ended while this process was suspended.
        while not self._running.wait(self._timings.look) and not self._stop.requested:
            self._tracker.beat()
            if self._clock() > until:
                return False
        return True

    def _ends_within(self, seconds: float) -> bool:
        """Return whether the round ends within this time; a stop waits as for a control fence at most."""
        self._ends_or_stops_within(seconds)
        return self._running.wait(min(seconds, self._timings.control_fence) if self._stop.requested else 0)

    def _end(self, ending: Ending, reason: str = "", control_seconds: float | None = None) -> bool:
        """
        End the round early; return whether tasks had to be killed.

        Fencing one partition is enough for a running task: it commits the others and reports, within `control_seconds`.
        A task that opened after the fence has fenced us in turn, so all partitions are fenced next. Whatever still runs
        then is killed. Without `control_seconds` all partitions are fenced at once: the tasks have had their time.
        """
        self._tracker.round_ends(ending, reason)
        steps = [(self._partitions, self._timings.fence_all)]
        if control_seconds is not None:
            hanging = {*self._tracker.undeliverable, *self._tracker.snapshot.taken}
            control = [assignment.control_partition(hanging) for assignment in self._assignments]
            steps.insert(0, (control, control_seconds))
        for partitions, seconds in steps:
            if self._tracker.snapshot.taken.keys() >= set(partitions):  # none of them is ours
                continue
            self.reached = self._fences(partitions)
            if not self.reached:
                self.tasks_to_blame &= self._fence is None
                break
            if self._ends_within(seconds):
                return False
        self._tracker.tasks_killed()
        self._running.cancel()
        self._running.wait(self._timings.kill)
        if self.reached:  # end the killed tasks' open transactions; during an outage it would only take time
            self._fences(self._partitions)
        return True

    def _fences(self, partitions: Collection[Partition]) -> bool:
        ours = [each for each in partitions if each not in self._tracker.snapshot.taken]
        self.fenced.update(ours)
        try:
            return self._fence is not None and bool(self._fence.fence(ours))
        except NotAllowed:  # the next discovery judges whether the refusal persists
            return False


def overrun(assignments: Iterable[Assignment], timings: Timings) -> float:
    """Return how many seconds past its deadline a round may take, for the last commits of its largest task."""
    largest = max(len(assignment.ranges) for assignment in assignments)
    return timings.overrun + timings.overrun_each * largest


class Patience:
    """
    How long the tasks of the next round may take: longer after rounds whose tasks did not report.

    Where tasks start slowly, each would otherwise be killed in vain.
    """

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._factor = 1

    @property
    def timings(self) -> Timings:
        return self._timings.for_slow_tasks(self._factor)

    def failed(self) -> None:
        """Double it after a round whose tasks did not report."""
        self._factor = min(2 * self._factor, MOST_PATIENCE)

    def reported(self, assignments: Iterable[Assignment], late: float) -> None:
        """Keep what a round has needed that ended so many seconds after its deadline."""
        while self._factor > 1 and late <= overrun(assignments, self._timings.for_slow_tasks(self._factor // 2)):
            self._factor //= 2


class Suspects:
    """The partitions that stood still when workers died or hung, and may hold a record that kills or hangs a parser."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stood: dict[Partition, int] = {}
        """The next offset of each partition, as last seen in the failed round."""
        self._until: dict[Partition, float] = {}

    def round_died(self, offsets: Offsets) -> None:
        """Record the last seen offsets of a round in which workers died or hung."""
        self._stood = {partition: at.next_offset(0) for partition, at in offsets.items()}

    def acquit(self) -> None:
        """Forget the last failed round: Kafka is not responding, so its tasks may only have waited for Kafka."""
        self._stood.clear()

    def among(self, workload: Workload) -> frozenset[Partition]:
        """Return the partitions with waiting records that have committed nothing since such a round."""
        for partition in workload.ranges.keys() & self._stood.keys():
            if workload.lag(partition) and workload.offsets[partition].next_offset(0) == self._stood[partition]:
                self._until[partition] = self._clock() + SUSPECT_SECONDS
        self._stood.clear()
        return frozenset(partition for partition, until in self._until.items() if self._clock() < until)
