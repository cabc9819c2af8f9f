"""Spark as far as the driver and the tasks see it: slots, attempts, kills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.errors import SparkFailed
from app.executor import task
from app.executor.clients import ClientFactory
from app.model import Assignment, OffsetRange, Receipt
from app.runtime import Runtime
from parsers.contract import Parser
from tests.simulation.scheduler import Process, Scheduler, SimEvent

MOST_ATTEMPTS = 8
START_SECONDS = (0.02, 0.3)
SLOW_START_SECONDS = (60.0, 70.0)
"""Longer than the driver waits for a first commit."""


class SimRounds:
    """
    Runs tasks as processes of their own.

    Args:
        make_clients: makes the clients of a task, inside its process.
        runtime: the runtime of the driver and of all workers.
        submits: called before each round.
        start_seconds: how long a worker takes to start, at least and at most.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        driver: Process,
        make_clients: Callable[[Assignment], ClientFactory],
        runtime: Runtime,
        *,
        parser: Parser,
        slots: int,
        submits: Callable[[], object],
        start_seconds: tuple[float, float] = START_SECONDS,
    ) -> None:
        self.slots, self.start_seconds = slots, start_seconds
        self.scheduler, self.driver, self.make_clients = scheduler, driver, make_clients
        self.runtime, self.parser, self.submits = runtime, parser, submits
        self.since = scheduler.now  # the driver goes to work
        self.workers: list[Process] = []
        """All workers ever started; the last ones may be alive."""
        self.planned: list[OffsetRange] = []
        """What the current round reads."""
        driver.when_it_dies.append(self._driver_died)

    @property
    def alive(self) -> list[Process]:
        return [each for each in self.workers if not each.dead]

    def _driver_died(self) -> None:
        """Executors notice that their driver is gone, but not at once."""
        for worker in self.alive:
            seconds = self.scheduler.rng.uniform(0.05, 3.0)
            self.scheduler.after(seconds, lambda worker=worker: self.scheduler.kill(worker))  # type: ignore[misc]

    def warm_up(self) -> None:
        self.scheduler.sleep(0.1)

    def submit(self, assignments: Sequence[Assignment]) -> SimRound:
        self.submits()
        self.planned = [each for assignment in assignments for each in assignment.ranges]
        return SimRound(self, assignments)

    def stop(self) -> None:
        for worker in self.alive:
            self.scheduler.kill(worker)


class SimRound:
    """One round."""

    starved = False

    def __init__(self, rounds: SimRounds, assignments: Sequence[Assignment]) -> None:
        self._rounds = rounds
        self._ended = SimEvent()
        self._left = len(assignments)
        self._receipts: list[Receipt] = []
        self._cancelled = False
        self._failure = ""
        self._workers: list[Process] = []
        self.lost_tasks = self.done_tasks = 0
        for assignment in assignments:
            self._start(assignment)

    def _start(self, assignment: Assignment) -> None:
        rounds, scheduler = self._rounds, self._rounds.scheduler
        worker = Process(f"{rounds.driver.name}.w{len(rounds.workers) + 1}")
        rounds.workers.append(worker)
        self._workers.append(worker)
        worker.when_it_dies.append(lambda: self._lost(assignment, worker))

        def work() -> None:
            scheduler.sleep(scheduler.rng.uniform(*rounds.start_seconds))
            try:
                receipts = task.run(
                    assignment,
                    rounds.make_clients(assignment),
                    rounds.parser,
                    self._seconds(assignment),
                    rounds.runtime,
                )
            except Exception as error:  # noqa: BLE001  # Spark tries the task again
                self._failure = f"{type(error).__name__}: {error}"
                scheduler.kill(worker)
                return
            worker.when_it_dies.clear()
            self._receipts += receipts
            self.done_tasks += 1
            self._one_ended()
            scheduler.kill(worker)

        scheduler.spawn(worker, "task", work)

    def _seconds(self, assignment: Assignment) -> float:
        if assignment.attempt.number == 0:
            return assignment.seconds
        return min(max(assignment.deadline - self._rounds.runtime.wall_clock(), 0.0), assignment.seconds)

    def _lost(self, assignment: Assignment, _worker: Process) -> None:
        if self._cancelled or self._rounds.driver.dead:
            return
        self.lost_tasks += 1
        number = assignment.attempt.number + 1
        if number >= MOST_ATTEMPTS:
            self.cancel()
            return
        again = replace(assignment, attempt=assignment.attempt._replace(number=number))
        scheduler = self._rounds.scheduler
        scheduler.after(scheduler.rng.uniform(0.05, 0.5), lambda: self._again(again))

    def _again(self, assignment: Assignment) -> None:
        if not self._cancelled and not self._rounds.driver.dead:
            self._start(assignment)

    def _one_ended(self) -> None:
        self._left -= 1
        if not self._left:
            self._ended.set()

    def wait(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

    def cancel(self) -> None:
        self._cancelled = True
        for worker in self._workers:
            self._rounds.scheduler.kill(worker)
        self._ended.set()

    def receipts(self) -> Sequence[Receipt]:
        if self._cancelled:
            msg = f"the round was cancelled: {self._failure}"
            raise SparkFailed(msg)
        return self._receipts
