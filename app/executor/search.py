"""
Finds the records of a partition that Kafka refuses, whatever its reason, by commits of ever fewer records.

Where a transaction is refused again and again, one of its records is to blame. The next transaction takes only the
first half of them. If it succeeds, the search goes on behind it, otherwise inside it. A record that is refused alone is
found. Where one is refused, more may follow, so the search then takes one record, two, four and so on.
"""

from __future__ import annotations

from app.cures import reset
from app.model import Partition

# A refusal may pass: a topic's configuration takes a moment to reach all brokers.
REFUSALS_IN_A_ROW = 3
# A lane that has committed so many offsets at once takes as many as it likes again.
LARGEST_STEP = 16_384


def refused_cure(partition: Partition, offset: int) -> str:
    """Return what a person does about a record that even the dead letters refuse."""
    settings = "max.message.bytes, cleanup.policy, message.timestamp.* or compression.type"
    skip = reset(partition, f"--to-offset {offset + 1}")
    return f"fix {settings} on the dead-letter topic; to skip the record, {skip}"


class Search:
    """The search for refused records in one partition; idle until Kafka refuses one again and again."""

    def __init__(self) -> None:
        self.stop: int | None = None
        """Commit before this offset is passed."""
        self.found: int | None = None
        """The next offset, if its record was refused alone."""
        self._start = self._refusals = 0
        """How often Kafka has refused what begins at an offset."""
        self._refused_end: int | None = None
        """Where a transaction ended that was refused."""
        self._step = 1

    def refused(self, start: int, end: int) -> None:
        """
        Learn that Kafka refuses one of some records.

        Args:
            start: the committed offset.
            end: the offset after the last record that was sent.
        """
        self._refusals = self._refusals + 1 if start == self._start else 1
        self._start = start
        if end <= start or (self.stop is None and self._refusals < REFUSALS_IN_A_ROW):
            return
        self._step, self._refused_end = 1, end
        self.stop = start + max(1, (end - start) // 2)
        if end == self.stop:
            self.found = start

    def committed(self, offset: int) -> None:
        """Learn that everything before an offset is committed."""
        if self.stop is None or offset < self.stop:
            return
        self.found = None
        if self._refused_end is not None and offset < self._refused_end:
            self.stop = offset + max(1, (self._refused_end - offset) // 2)
            return
        self.stop = offset + self._step if self._step <= LARGEST_STEP else None
        self._step, self._refused_end = self._step * 2, None
