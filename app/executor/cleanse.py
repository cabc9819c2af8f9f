"""Turns records into lines and dead letters: the one way that a task, an audit and a replay of dead letters share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.executor.dead_letters import TopicIds, make_dead_letter, make_dead_letters
from app.executor.limits import Limits, Now
from app.executor.parse import REFUSED, refuse, with_headers, with_keys
from app.model import NO_EPOCH, SOURCE_KEY, FilterRule, LastRead, TaskConfig
from app.offsets.metadata import Counts
from app.records import Chunk, Lines, OutgoingRecord, offsets_of
from parsers.contract import Parse, Parsed, Parser, Reject, Rows
from parsers.fields.located import pattern_of
from parsers.filters import LineFilter


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

    @property
    def counts(self) -> Counts:
        return Counts(
            self.records, len(self.lines), Counter(self.reasons), self.bytes_in, self.bytes_out, filtered=self.filtered
        )


@dataclass(frozen=True, slots=True)
class Dropped:
    """
    The rows of a chunk that filters dropped.

    Args:
        rows: ascending.
        by: for each row, the index of its rule.
        rules: the names of all rules.
    """

    rows: Rows
    by: NDArray[np.int8]
    rules: Sequence[str]

    def counts(self, begin: int, end: int) -> Mapping[str, int]:
        """Return how many of the rows from `begin` up to but excluding `end` each rule dropped."""
        first, after = np.searchsorted(self.rows, (begin, end)).tolist()
        counts = np.bincount(self.by[first:after], minlength=len(self.rules))
        return {rule: count for rule, count in zip(self.rules, counts.tolist(), strict=True) if count}


NONE_DROPPED = Dropped(np.zeros(0, np.int32), np.zeros(0, np.int8), ())


class Filters:
    """The rules of a configuration, in order: the first one that drops a line counts it."""

    def __init__(self, rules: Sequence[FilterRule], parser: Parser) -> None:
        self._names = [each.name for each in rules]
        self._filters = [LineFilter(parser, each.field, each.check, keeps=each.keeps) for each in rules]

    def drop(self, parsed: Parsed) -> tuple[Parsed, Dropped]:
        """Return the result without the lines that are dropped, and what was dropped."""
        if not self._filters:
            return parsed, NONE_DROPPED
        values, left, by = parsed.values, np.arange(len(parsed.rows)), np.full(len(parsed.rows), -1, np.int8)
        for number, each in enumerate(self._filters):
            drops = each.drops(values)
            if drops.any():
                by[left[drops]] = number
                left, values = left[~drops], values.filter(pa.array(~drops))
        dropped = by >= 0
        kept = replace(parsed, values=values, rows=parsed.rows[left])
        return kept, Dropped(parsed.rows[dropped], by[dropped], self._names)


@dataclass(frozen=True, slots=True)
class CleansedChunk:
    """The results for a chunk: its lines in `parsed`, a dead letter for each reject, and what filters dropped."""

    chunk: Chunk
    parsed: Parsed
    dead_letters: Sequence[OutgoingRecord]
    reasons: Sequence[str]
    dropped: Dropped

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
        self, config: TaskConfig, parser: Parser, parse: Parse, ids: TopicIds, clocks: Sequence[Callable[[], float]]
    ) -> None:
        self._config = config
        self._parse = parse
        self._key = "" if config.sink_key == SOURCE_KEY else pattern_of(parser, config.sink_key)
        """What finds the key in a line; empty if a line keeps its record's key."""
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
