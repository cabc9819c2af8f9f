"""Tracks the service as a whole: its phase, outages, warnings and totals; passes each snapshot to the listeners."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from app.errors import NotAllowed, Unreachable
from app.model import NOBODY, Owner, Partition
from app.offsets.metadata import Counts
from app.offsets.times import NO_TIME, TaskReport, TaskTimes
from app.runtime import Runtime
from app.status.snapshot import About, Phase, Problem, Snapshot, Step
from app.status.window import recent

Listener = Callable[[Snapshot, Snapshot], None]
"""Called with the snapshots before and after a change."""


class ServiceTracker:
    """The owner of the snapshot. It calls each listener, in order, with every change."""

    def __init__(self, group: str, listeners: Iterable[Listener], runtime: Runtime, about: About) -> None:
        self._runtime = runtime
        self._listeners = tuple(listeners)
        self._about = about
        now = runtime.wall_clock()
        self.snapshot = Snapshot(at=now, alive=now, group=group, started=now, step_since=now)
        self._changing = threading.Lock()
        self._totals = Counts()
        self._times = TimesOfTasks()
        self._me = NOBODY

    def started(self, me: Owner) -> None:
        """Record that this run of the service has started, as its tasks name it."""
        self._me = me
        self._publish(about=self._about)

    def waits_for(self, step: Step) -> None:
        if step is not self.snapshot.step:
            self._publish(step=step, step_since=self._now())

    def beat(self) -> None:
        """Record that the service is alive. Listeners are not called, because nothing has changed."""
        with self._changing:
            self.snapshot = replace(self.snapshot, alive=self._now())

    def warned(self, warnings: Sequence[str]) -> None:
        if warnings:
            self._publish(warnings=tuple(warnings))

    def kafka_is_away(self, error: NotAllowed | Unreachable) -> None:
        """Record that Kafka is not responding or refuses the driver. Whatever the errors, it is a single outage."""
        before, now = self.snapshot.outage, self._now()
        self._publish(outage=Problem.of(error, before.since if before else now))

    def kafka_is_back(self) -> None:
        if self.snapshot.outage:
            # Nothing could move in the outage. Judged from before it, each partition would be stalled.
            now, known = self._now(), self.snapshot.partitions
            partitions = {each: replace(status, points=recent(status.points, now)) for each, status in known.items()}
            self._publish(outage=None, partitions=partitions)

    def taken_over(self, taken: Mapping[Partition, Owner]) -> None:
        if taken != self.snapshot.taken:
            self._publish(taken=taken)

    def running(self) -> None:
        """Record that the start is over, but not in a pause. A round does so itself, but there may be none to run."""
        if self.snapshot.phase is Phase.STARTING and self.snapshot.paused is None:
            self._publish(phase=Phase.RUNNING)

    def leaving(self, cause: str) -> None:
        """Record the signal after which the service stops as soon as another one has taken over; empty for none."""
        if cause and self.snapshot.phase in {Phase.STARTING, Phase.RUNNING}:
            self._publish(phase=Phase.LEAVING, cause=cause)

    def stopping(self, cause: str) -> None:
        self._publish(phase=Phase.STOPPING, cause=cause)

    def stopped(self, cause: str) -> None:
        self._publish(phase=Phase.STOPPED, cause=cause)

    def _publish(self, **changes: object) -> None:
        with self._changing:
            before, now = self.snapshot, self._now()
            self.snapshot = replace(before, at=now, alive=now, totals=self._totals, tasks=self._times.total, **changes)  # type: ignore[arg-type]  # its own fields
        for listener in self._listeners:
            listener(before, self.snapshot)

    def _now(self) -> float:
        return self._runtime.wall_clock()


class TimesOfTasks:
    """Adds up the times that tasks of the run report with offsets."""

    def __init__(self) -> None:
        self._reports: dict[int, tuple[tuple[int, ...], TaskTimes]] = {}
        """The last attempt of each task, and its report."""
        self.total: Mapping[int, TaskTimes] = {}
        """The times of each task, by its number within a round."""

    def take(self, report: TaskReport) -> None:
        """Add a task's report. Old partitions may carry older times, and a retry starts from zero."""
        task, attempt = report.attempt.task, (report.attempt.round, report.attempt.number)
        known, before = self._reports.get(task, (attempt, NO_TIME))
        if attempt < known or (attempt == known and report.times.seconds < before.seconds):
            return
        new = report.times.since(before) if attempt == known else report.times
        self._reports[task] = attempt, report.times
        self.total = {**self.total, task: self.total.get(task, NO_TIME) + new}
