"""
How much a partition takes between two commits, where its sink is slow.

What was sent must be acknowledged before it can be committed, and that must not take longer than a transaction may. So
a slow commit tells how much the sink takes in its time, and the next transactions are that small. Quick ones let them
grow again, gently: a broker that enforces a quota forgives a burst first, and lets its clients wait for it later.
"""

from __future__ import annotations

from app.executor.cleansed import Cleansed
from app.offsets.metadata import Counts

# What a commit should take at most, in seconds. It gives up after ten (`app.kafka.consumer.CONTROL_SECONDS`).
SLOW_SECONDS = 2.0
GROWTH = 1.5
# In bytes: a partition that takes MOST in one transaction is not limited any more, and LEAST is allowed to each.
MOST, LEAST = 32 << 20, 64 << 10
# What librdkafka and the protocol need for a record beside its value, roughly.
RECORD_BYTES = 256


def size(taken: Counts | Cleansed) -> int:
    """Return how many bytes such records take in memory, from when they are sent until they are acknowledged."""
    return taken.bytes_in + RECORD_BYTES * taken.records


class Allowance:
    """How many bytes one partition takes before it commits; None where its commits are quick."""

    def __init__(self, most: int | None = None) -> None:
        self.bytes = most

    def committed(self, taken: int, seconds: float) -> None:
        """Learn how long it took to commit so many bytes."""
        if seconds > SLOW_SECONDS:
            self._shrink(taken, SLOW_SECONDS / seconds)
        elif self.bytes is not None and taken >= self.bytes:
            grown = int(self.bytes * GROWTH)
            self.bytes = grown if grown < MOST else None

    def failed(self, taken: int, seconds: float) -> None:
        """Learn that so many bytes could not be committed, and after how long that was given up."""
        if seconds > SLOW_SECONDS:
            self._shrink(taken, SLOW_SECONDS / seconds / 2)

    def _shrink(self, taken: int, share: float) -> None:
        before = taken if self.bytes is None else min(taken, self.bytes)
        self.bytes = max(LEAST, int(before * share))
