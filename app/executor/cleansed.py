"""What a task makes of the records of one partition, on its way from the parser to the writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.model import LastRead
from app.offsets.metadata import Counts
from app.records import DeadLetter, Lines


@dataclass(frozen=True, slots=True)
class Cleansed:
    """
    What became of some consecutive records of one partition.

    Args:
        records: how many there were.
        bytes_in: the size of their values.
        lines: the cleansed lines.
        bytes_out: the size of these lines.
        dead_letters: the rejects.
        reasons: the reason of each reject.
        position: the offset after the last of the records.
        read: that, with its leader epoch, if it is known.
    """

    records: int
    bytes_in: int
    lines: Lines
    bytes_out: int
    dead_letters: Sequence[DeadLetter]
    reasons: Sequence[str]
    position: int
    read: LastRead | None = None

    def rejected(self, dead_letter: DeadLetter, reason: str) -> Cleansed:
        """Return the same for a single record that becomes a dead letter after all."""
        none = replace(self.lines, values=self.lines.values.slice(0, 0), rows=self.lines.rows[:0])
        return replace(self, lines=none, bytes_out=0, dead_letters=[dead_letter], reasons=[reason])

    @property
    def counts(self) -> Counts:
        """How many records and bytes this is."""
        return Counts(self.records, len(self.lines), Counter(self.reasons), self.bytes_in, self.bytes_out)
