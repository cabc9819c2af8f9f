"""
How much a partition with a slow sink takes between two commits.

Records must be acknowledged before they can be committed, and within the transaction timeout. A slow commit shows how
much the sink accepts in its time, and sets the size of the next transactions. Fast commits let them grow again, but
gradually: a broker that enforces a quota tolerates a burst at first and throttles its clients later.
"""

from __future__ import annotations

from app.executor.cleansed import Cleansed
from app.offsets.metadata import Counts

# The longest that a commit should take. It is given up after 10 s (`app.kafka.consumer.CONTROL_SECONDS`).
SLOW_SECONDS = 2.0
GROWTH = 1.5
# In bytes: a partition that takes MOST in one transaction is no longer limited; LEAST is always allowed.
MOST, LEAST = 32 << 20, 64 << 10
# The approximate overhead of a record in librdkafka and the protocol.
RECORD_BYTES = 256


def size(taken: Counts | Cleansed) -> int:
    """Return how many bytes of memory these records occupy from sending until acknowledgement."""
    return taken.bytes_in + RECORD_BYTES * taken.records


class Allowance:
    """How many bytes one partition takes before it commits; None while its commits are fast."""

    def __init__(self, most: int | None = None) -> None:
        self.bytes = most

    def committed(self, taken: int, seconds: float) -> None:
        """Learn that a commit of `taken` bytes took this long."""
        if seconds > SLOW_SECONDS:
            self._shrink(taken, SLOW_SECONDS / seconds)
        elif self.bytes is not None and taken >= self.bytes:
            grown = int(self.bytes * GROWTH)
            self.bytes = grown if grown < MOST else None

    def failed(self, taken: int, seconds: float) -> None:
        """Learn that a commit of `taken` bytes was given up after this long."""
        if seconds > SLOW_SECONDS:
            self._shrink(taken, SLOW_SECONDS / seconds / 2)

    def _shrink(self, taken: int, share: float) -> None:
        before = taken if self.bytes is None else min(taken, self.bytes)
        self.bytes = max(LEAST, int(before * share))
