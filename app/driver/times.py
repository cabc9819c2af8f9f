"""Adds up the task times that tasks report in the metadata of their offsets."""

from __future__ import annotations

from collections.abc import Mapping

from app.offsets.metadata import OffsetMetadata
from app.offsets.times import NO_TIME, TaskTimes


class TimesOfTasks:
    """The times of the tasks of the run that started at `started`, in milliseconds since the epoch."""

    def __init__(self, started: int) -> None:
        self._started = started
        self._reports: dict[int, tuple[tuple[int, ...], TaskTimes]] = {}
        """The last attempt of each task, and its report."""
        self.total: Mapping[int, TaskTimes] = {}
        """The times of each task, by its number within a round."""

    def take(self, metadata: OffsetMetadata) -> None:
        """Add a task's report. Old partitions may carry older times, and a retry starts from zero."""
        report, run = metadata.report, metadata.owner.started
        if report is None or run < self._started:
            return
        task, attempt = report.attempt.task, (run, report.attempt.round, report.attempt.number)
        known, before = self._reports.get(task, (attempt, NO_TIME))
        if attempt < known or (attempt == known and report.times.seconds < before.seconds):
            return
        new = report.times.since(before) if attempt == known else report.times
        self._reports[task] = attempt, report.times
        self.total = {**self.total, task: self.total.get(task, NO_TIME) + new}
