"""The results for some records of one partition, on their way from the parser to the writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from app.errors import Transient
from app.model import NO_EPOCH, LastRead, Partition
from app.offsets.metadata import Counts
from app.records import Chunk, Lines, OutgoingRecord, offsets_of
from parsers.contract import Parsed


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


def cleansed_rows(
    chunk: Chunk, parsed: Parsed, rejects: tuple[Sequence[OutgoingRecord], Sequence[str]], rows: slice, stop: int | None
) -> Cleansed:
    """Return the results for these rows, all of one partition; only those before the offset `stop` if it is given."""
    begin, end = rows.start, rows.stop
    position = int(chunk.offsets[end - 1]) + 1
    if stop is not None and position > stop:
        end = begin + int(np.searchsorted(chunk.offsets[begin:end], stop))
        position = stop
    good, after_good = np.searchsorted(parsed.rows, (begin, end)).tolist()
    bad, after_bad = np.searchsorted(parsed.reject_rows, (begin, end)).tolist()
    dead_letters, reasons = rejects
    values = parsed.values.slice(good, after_good - good)
    return Cleansed(
        records=end - begin,
        bytes_in=_size(offsets_of(chunk.values), begin, end),
        lines=Lines(values, parsed.rows[good:after_good], chunk.keys_of_lines, chunk.timestamps, chunk.kept),
        bytes_out=_size(offsets_of(parsed.values), good, after_good),
        dead_letters=dead_letters[bad:after_bad],
        reasons=reasons[bad:after_bad],
        start=int(chunk.offsets[begin]),
        position=position,
        read=_last_read(chunk.epoch_of(rows.stop - 1), position),
    )


def _last_read(epoch: int, position: int) -> LastRead | None:
    return LastRead(position, epoch) if epoch != NO_EPOCH else None


def _size(offsets: NDArray[np.int32], begin: int, end: int) -> int:
    return int(offsets[end] - offsets[begin])
