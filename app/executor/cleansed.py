"""What a task makes of the records of one partition, on its way from the parser to the writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from app.model import NO_EPOCH, LastRead
from app.offsets.metadata import Counts
from app.records import Chunk, DeadLetter, Lines, offsets_of
from parsers.contract import Parsed


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


def cleansed_rows(
    chunk: Chunk, parsed: Parsed, rejects: tuple[Sequence[DeadLetter], Sequence[str]], rows: slice, stop: int | None
) -> Cleansed:
    """Return what became of these rows of a chunk, which are of one partition, or of those before the offset `stop`."""
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
        position=position,
        read=_last_read(chunk.epoch_of(rows.stop - 1), position),
    )


def _last_read(epoch: int, position: int) -> LastRead | None:
    return LastRead(position, epoch) if epoch != NO_EPOCH else None


def _size(offsets: NDArray[np.int32], begin: int, end: int) -> int:
    return int(offsets[end] - offsets[begin])
