"""The results for some records of one partition, on their way from the parser to the writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.errors import Transient
from app.model import LastRead, Partition
from app.offsets.metadata import Counts
from app.records import Lines, OutgoingRecord


@dataclass(frozen=True, slots=True)
class Cleansed:
    """
    The results for consecutive records of one partition.

    Args:
        records: the number of records.
        bytes_in: the total size of their values.
        lines: the cleansed lines.
        bytes_out: the total size of these lines.
        dead_letters: the rejects.
        reasons: the reason code of each reject.
        start: the offset of the first record.
        position: the offset after the last record.
        read: the same with its leader epoch, if that is known.
    """

    records: int
    bytes_in: int
    lines: Lines
    bytes_out: int
    dead_letters: Sequence[OutgoingRecord]
    reasons: Sequence[str]
    start: int
    position: int
    read: LastRead | None = None

    def rejected(self, dead_letter: OutgoingRecord, reason: str) -> Cleansed:
        """Return the result for a single record that becomes a dead letter after all."""
        none = replace(self.lines, values=self.lines.values.slice(0, 0), rows=self.lines.rows[:0])
        return replace(self, lines=none, bytes_out=0, dead_letters=[dead_letter], reasons=[reason])

    def refuse_repeats(self, partition: Partition, position: int) -> None:
        """
        Require that the records begin at the position or after it. librdkafka has delivered some twice (#4261, #4637).

        The lane then reads again from its committed offset.

        Raises:
            Transient: they begin before it.
        """
        if self.records and self.start < position:
            cause = f"the consumer delivered records from offset {self.start} on again"
            raise Transient(partition, cause, position)

    @property
    def counts(self) -> Counts:
        """The counts of these records."""
        return Counts(self.records, len(self.lines), Counter(self.reasons), self.bytes_in, self.bytes_out)
