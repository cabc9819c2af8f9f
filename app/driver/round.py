"""
The life of one round: tasks work while the plan is good, and are ended in steps when it is not.

A round ends by itself at its deadline. Before that only a fence ends it: one partition of each task, then all of them,
then the job is killed. Without transactions there is no fence, and a round is a short one instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor

from app.driver.clients import Fence, RunningRound
from app.driver.stop import Stop, Stopped
from app.driver.tracker import StatusTracker
from app.model import Assignment, Guarantee, Partition
from app.runtime import Runtime
from app.status.snapshot import End

# For how many checks a round may go on. Idle partitions renew their offset with each round. Without transactions there
# is no way to end a round early without doing work twice, so it is a short one.
CHECKS = {Guarantee.EXACTLY_ONCE: 60, Guarantee.AT_LEAST_ONCE: 3}
STOP_SECONDS = 0.1
# Asking Spark ten times a second cost 0.4 CPU-seconds per million records (make bench).
WATCH_SECONDS = 1.0
# After the control partitions are fenced, tasks commit and report. Then all partitions are fenced, then the job killed.
CONTROL_FENCE_SECONDS = 2.5
FENCE_ALL_SECONDS = 2.0
KILL_SECONDS = 4.0
# A task may take so long after its deadline to open and for its last commits, and so much longer for each partition.
# After that it is stuck, or its machine is, and the partitions of all other tasks wait for the next round.
# To see how long they wait: python -m tests.chaos run --fault "worker stopped".
OVERRUN_SECONDS = 4.0
OVERRUN_SECONDS_EACH = 0.1


class Round:
    """
    A running round, watched to its end.

    Args:
        running: the tasks.
        assignments: what each of them does.
        fence: ends tasks; None where there are no transactions.
        stop: the request to stop.
        tracker: takes in what happens.
        runtime: the clocks.
        checks: a pool of one thread, in which Kafka is asked whether the round must end.
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
        self._fence = fence
        self._stop = stop
        self._tracker = tracker
        self._clock = runtime.monotonic
        self._checks = checks
        self.fenced: set[Partition] = set()
        """The partitions that were fenced to end it."""
        self.reached = True
        """Whether the fences have reached Kafka."""
        self.tasks_to_blame = True
        """Whether its tasks are to blame if they do not report, rather than a stop, a lost executor or Kafka."""

    def watch(self, needs_rebalance: Callable[[], str], every: float) -> bool:
        """
        Wait for the round's end, and end it where it must not go on; return whether its tasks had to be killed.

        Args:
            needs_rebalance: returns why the round must end; empty if it need not.
            every: seconds between two such checks.
        """
        began = self._clock()
        overdue = began + self._assignments[0].seconds + overrun(self._assignments)
        next_check, lost = began + every, 0
        while not self._ends_or_stops_within(WATCH_SECONDS):
            self._tracker.leaving(self._stop.leaving)
            if self._running.lost_tasks > lost:
                lost = self._running.lost_tasks
                self._tracker.tasks_lost(lost)
            if self._running.starved:
                self.tasks_to_blame = False
                return self._end(End.STARVED, "", CONTROL_FENCE_SECONDS)
            if self._clock() > overdue:
                self._tracker.round_ends(End.OVERDUE)
                return self._shut_out((self._all_partitions, FENCE_ALL_SECONDS))
            if self._fence is not None and self._clock() > next_check:
                if why := self._unless_stopped(needs_rebalance):
                    return self._end(End.REBALANCE, why, overrun(self._assignments))
                next_check = self._clock() + every
        if self._stop.requested and not self._running.wait(0):
            self._tracker.stopping(self._stop.cause)
            self.tasks_to_blame = False
            return self._end(End.STOPPED, self._stop.cause, CONTROL_FENCE_SECONDS)
        return False

    @property
    def _all_partitions(self) -> list[Partition]:
        return [each.partition for assignment in self._assignments for each in assignment.ranges]

    def _unless_stopped(self, check: Callable[[], str]) -> str:
        """Return what the check finds; empty if a stop is requested first, because Kafka may take long to answer."""
        try:
            return self._stop.result(self._checks.submit(check))
        except Stopped:
            return ""

    def _ends_or_stops_within(self, seconds: float) -> bool:
        """Return whether the round ends or a stop is requested within so many seconds."""
        until = self._clock() + seconds
        # At least one look, however long this process itself was stopped: the round may have ended meanwhile.
        while not self._running.wait(STOP_SECONDS) and not self._stop.requested:
            self._tracker.beat()
            if self._clock() > until:
                return False
        return True

    def _ends_within(self, seconds: float) -> bool:
        """Return whether the round ends within so many seconds; a stop waits for CONTROL_FENCE_SECONDS at most."""
        self._ends_or_stops_within(seconds)
        return self._running.wait(min(seconds, CONTROL_FENCE_SECONDS) if self._stop.requested else 0)

    def _end(self, ending: End, reason: str, seconds: float) -> bool:
        """
        End the round before its deadline, in so many seconds; return whether its tasks had to be killed.

        One fence for each task is enough for a task that runs: it commits its other partitions and reports. A task that
        opened after the fence has fenced us in turn, so all partitions follow. What still runs then is killed.
        """
        self._tracker.round_ends(ending, reason)
        hanging = {*self._tracker.undeliverable, *self._tracker.taken}
        control = [assignment.control_partition(hanging) for assignment in self._assignments]
        return self._shut_out((control, seconds), (self._all_partitions, FENCE_ALL_SECONDS))

    def _shut_out(self, *steps: tuple[Collection[Partition], float]) -> bool:
        """Fence partitions step by step, each with its time to end the round; return whether it had to be killed."""
        for partitions, seconds in steps:
            if self._tracker.taken.keys() >= set(partitions):  # nothing of it is ours
                continue
            self.reached = self._fences(partitions)
            if not self.reached:
                self.tasks_to_blame &= self._fence is None
                break
            if self._ends_within(seconds):
                return False
        self._tracker.tasks_killed()
        self._running.cancel()
        self._running.wait(KILL_SECONDS)
        if self.reached:  # ends what the killed tasks left open; where Kafka is away, it would only take time
            self._fences(self._all_partitions)
        return True

    def _fences(self, partitions: Collection[Partition]) -> bool:
        """Fence partitions, but not those that somebody has taken over; return whether Kafka was reached."""
        ours = [each for each in partitions if each not in self._tracker.taken]
        self.fenced.update(ours)
        return self._fence is not None and bool(self._fence.fence(ours))


def overrun(assignments: Iterable[Assignment]) -> float:
    """Return how many seconds after its deadline a round may take: what its largest task needs for its last commits."""
    largest = max(len(assignment.ranges) for assignment in assignments)
    return OVERRUN_SECONDS + OVERRUN_SECONDS_EACH * largest
