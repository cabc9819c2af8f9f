"""Turns records into lines and dead letters: the one way that a task, an audit and a replay of dead letters share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from app.errors import Transient
from app.executor.dead_letters import NO_IDS, TopicIds, make_dead_letter, make_dead_letters
from app.executor.filtering import NONE_DROPPED, Dropped, Filters
from app.executor.limits import Limits, Now
from app.executor.parse import REFUSED, key_pattern, refuse, with_headers, with_keys
from app.model import NO_EPOCH, LastRead, Partition, TaskConfig
from app.offsets.metadata import Counts
from app.records import Chunk, Lines, OutgoingRecord, offsets_of
from parsers.contract import Parse, Parsed, Parser, Reject


@dataclass(frozen=True, slots=True)
class Cleansed:
    """
    The results for consecutive records of one partition, on their way from the parser to the writer.

    Args:
        bytes_in: the total size of the records' values.
        bytes_out: the total size of the lines.
        reasons: the reason code of each dead letter.
        start: the offset of the first record.
        position: the offset after the last record.
        read: the same with its leader epoch, if that is known.
        filtered: how many records each filter dropped.
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
    filtered: Mapping[str, int] = field(default_factory=dict)

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
        return Counts(
            self.records, len(self.lines), Counter(self.reasons), self.bytes_in, self.bytes_out, filtered=self.filtered
        )


@dataclass(frozen=True, slots=True)
class CleansedChunk:
    """The results for a chunk: its lines in `parsed`, a dead letter for each reject, and what filters dropped."""

    chunk: Chunk
    parsed: Parsed
    dead_letters: Sequence[OutgoingRecord]
    reasons: Sequence[str]
    dropped: Dropped = NONE_DROPPED

    def rows(self, begin: int, end: int, stop: int | None) -> Cleansed:
        """Return the results for these rows, all of one partition; only those before the offset `stop`, if given."""
        chunk, parsed, last = self.chunk, self.parsed, end - 1
        position = int(chunk.offsets[last]) + 1
        if stop is not None and position > stop:
            end = begin + int(np.searchsorted(chunk.offsets[begin:end], stop))
            position = stop
        good, after_good = np.searchsorted(parsed.rows, (begin, end)).tolist()
        bad, after_bad = np.searchsorted(parsed.reject_rows, (begin, end)).tolist()
        values = parsed.values.slice(good, after_good - good)
        epoch = chunk.epoch_of(last)
        return Cleansed(
            records=end - begin,
            bytes_in=_size(offsets_of(chunk.values), begin, end),
            lines=Lines(values, parsed.rows[good:after_good], chunk.keys_of_lines, chunk.timestamps, chunk.kept),
            bytes_out=_size(offsets_of(parsed.values), good, after_good),
            dead_letters=self.dead_letters[bad:after_bad],
            reasons=self.reasons[bad:after_bad],
            start=int(chunk.offsets[begin]),
            position=position,
            read=LastRead(position, epoch) if epoch != NO_EPOCH else None,
            filtered=self.dropped.counts(begin, end),
        )


def _size(offsets: NDArray[np.int32], begin: int, end: int) -> int:
    return int(offsets[end] - offsets[begin])


class Cleanser:
    """
    Cleanses chunks with one configuration.

    Args:
        ids: the ids of the source topics, which dead letters bear.
        clocks: each returns seconds since the epoch; one of them may be wrong.
    """

    def __init__(
        self,
        config: TaskConfig,
        parser: Parser,
        parse: Parse,
        ids: TopicIds = NO_IDS,
        clocks: Sequence[Callable[[], float]] = (time.time,),
    ) -> None:
        self._config = config
        self._parse = parse
        self._key = key_pattern(parser, config)
        self._filters = Filters(config.filters, parser)
        self._sink = Limits.of(config.sink, config)
        self._dead_letters = Limits.of(config.dead_letters, config)
        self._ids = ids
        self._clocks = clocks

    def cleanse(self, chunk: Chunk) -> CleansedChunk:
        """Return the results for a chunk or its first rows. Call it before the next poll, which invalidates headers."""
        now = self._now
        parsed = self._parse(chunk.values)
        chunk = with_headers(chunk.first(parsed.records), self._config)
        parsed, dropped = self._filters.drop(parsed)
        chunk = with_keys(chunk, parsed, self._key)
        parsed = refuse(parsed, chunk, self._sink, now)
        dead_letters = make_dead_letters(chunk, parsed, self._dead_letters, now, self._ids)
        return CleansedChunk(chunk, parsed, dead_letters, parsed.reasons.to_pylist(), dropped)

    def refused(self, chunk: Chunk, row: int, cause: str) -> OutgoingRecord:
        """Return the dead letter of a record whose line Kafka refuses for good."""
        return make_dead_letter(chunk, Reject(row, REFUSED, cause), self._dead_letters, self._now, self._ids)

    @property
    def _now(self) -> Now:
        times = [round(clock() * 1000) for clock in self._clocks]
        return Now(min(times), max(times))
