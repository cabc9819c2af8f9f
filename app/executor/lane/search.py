"""
Finds the records of a partition that Kafka does not take, for whatever reason, by bisection.

If a transaction is refused again and again, one of its records is to blame. The next transaction contains only the
first half of them. If it succeeds, the search continues behind it, otherwise inside it, until a single record is
refused. More may follow, so the search then takes one record, two, four and so on.

If records cannot be delivered now, the same search blames none: it commits what can be delivered, so that only the rest
is tried again and again.
"""

from __future__ import annotations

from app.cures import reset
from app.model import Partition

# A failure may be temporary: a new topic configuration takes a moment to reach all brokers.
FAILURES_IN_A_ROW = 3
# Once a lane has committed this many offsets at once, the search ends.
LARGEST_STEP = 16_384


def refused_cure(partition: Partition, offset: int) -> str:
    """Return the cure for a record that even the dead-letter topic refuses."""
    settings = "max.message.bytes, cleanup.policy, message.timestamp.* or compression.type"
    skip = reset(partition, f"--to-offset {offset + 1}")
    return f"fix {settings} on the dead-letter topic, or the worker's clock; to skip the record, {skip}"


class Search:
    """The search for such records in one partition; idle until transactions fail repeatedly."""

    def __init__(self) -> None:
        self.stop: int | None = None
        """Commit before passing this offset."""
        self.found: int | None = None
        """The next offset, if its record alone was refused."""
        self._start = self._failures = self._refusals = 0
        """How often a transaction that starts at this offset has failed, and how often Kafka has refused it."""
        self._failed_end: int | None = None
        """The end of a failed transaction."""
        self._step = 1

    @property
    def blames(self) -> bool:
        """Whether Kafka has refused an offset often enough. One refusal of a record alone then finds a culprit."""
        return self.stop is not None and self._refusals >= FAILURES_IN_A_ROW

    def refused(self, start: int, end: int) -> None:
        """Learn that Kafka refused a transaction from `start`, the committed offset, to `end`, exclusive."""
        if end <= start:
            return
        refusals = self._refusals if self.blames or start == self._start else 0
        self.undelivered(start, end)
        self._refusals = refusals + 1
        if self.blames and end == start + 1:
            self.found = start

    def undelivered(self, start: int, end: int) -> None:
        """Learn that such a transaction failed, although perhaps no record is to blame."""
        if end <= start:
            return
        if start != self._start:
            self._start, self._failures, self._refusals = start, 0, 0
        self._failures += 1
        if self.stop is None and self._failures < FAILURES_IN_A_ROW:
            return
        self._step, self._failed_end = 1, end
        self.stop = start + max(1, (end - start) // 2)

    def committed(self, offset: int) -> None:
        """Learn that everything before an offset is committed."""
        if self.stop is None or offset < self.stop:
            return
        self.found = None
        if self._failed_end is not None and offset < self._failed_end:
            self.stop = offset + max(1, (self._failed_end - offset) // 2)
            return
        self.stop = offset + self._step if self._step <= LARGEST_STEP else None
        self._step, self._failed_end = self._step * 2, None
