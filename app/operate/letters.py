"""What `winnow dlq` shows: dead letters, where each came from, why, and how many there are. Changes nothing."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.headers import ERRORS, as_text, ours, whole_number
from app.model import Partition, Watermarks
from app.operate.pairs import text_of
from app.records import Record

NO_REASON = "(no reason)"
"""The reason of a record that no tool of this family has written."""


@dataclass(frozen=True, slots=True)
class Letter:
    """
    A dead letter.

    Args:
        record: as it lies in the dead-letter topic.
        errors: why it is one, by the part of the header's name after `__connect.errors.`; also those of another tool.
    """

    record: Record
    errors: Mapping[str, str]

    @classmethod
    def of(cls, record: Record) -> Letter:
        """Return a record of the dead-letter topic as what it stands for."""
        told = ours(record.headers) or as_text(record.headers)
        return cls(record, {name.removeprefix(ERRORS): text for name, text in told.items() if name.startswith(ERRORS)})

    @property
    def reason(self) -> str:
        """Why its record was rejected."""
        return self.errors.get("exception.class.name", NO_REASON)

    @property
    def detail(self) -> str:
        """A sentence about that."""
        return self.errors.get("exception.message", "")

    @property
    def origin(self) -> str:
        """The source record, as `topic-partition@offset`; empty where no header says."""
        topic, number, offset = (self.errors.get(name, "") for name in ("topic", "partition", "offset"))
        return f"{topic}-{number}@{offset}" if topic else ""

    @property
    def topic_id(self) -> str:
        """The id of the source topic, which no later topic of the same name has; empty where no header says."""
        return self.errors.get("topic.id", "")

    @property
    def place(self) -> str:
        """Where it lies in the dead-letter topic, as `partition@offset`."""
        return f"{self.record.partition.number}@{self.record.offset}"

    def as_json(self) -> dict[str, Any]:
        """Return what `ls` shows of it."""
        return {
            "partition": self.record.partition.number,
            "offset": self.record.offset,
            "timestamp": self.record.timestamp,
            "reason": self.reason,
            "detail": self.detail,
            "source_topic": self.errors.get("topic"),
            "source_partition": whole_number(self.errors.get("partition", "")),
            "source_offset": whole_number(self.errors.get("offset", "")),
        }

    def with_content(self) -> dict[str, Any]:
        """Return all of it, as `show` does."""
        headers = [[name, text_of(value)] for name, value in self.record.headers]
        return self.as_json() | {
            "key": text_of(self.record.key),
            "value": text_of(self.record.value),
            "headers": headers,
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """
    Which dead letters are wanted.

    Args:
        since: the first time, in milliseconds since 1970.
        until: the time before which they must be.
        reasons: those that are wanted; all, if there is none.
    """

    since: int | None = None
    until: int | None = None
    reasons: Collection[str] = ()

    @property
    def takes_all(self) -> bool:
        """Whether nothing is left out."""
        return self == Choice()

    def of(self, records: Iterable[Record]) -> Iterator[Letter]:
        """Return those that are wanted."""
        return filter(self.takes, map(Letter.of, records))

    def takes(self, letter: Letter) -> bool:
        """Tell whether one is wanted."""
        early = self.since is not None and letter.record.timestamp < self.since
        late = self.until is not None and letter.record.timestamp >= self.until
        return not (early or late) and (not self.reasons or letter.reason in self.reasons)


def last_written(
    watermarks: Mapping[Partition, Watermarks], limit: int, read: Callable[[dict[Partition, int]], Iterable[Letter]]
) -> list[Letter]:
    """
    Return the newest of those that were written last, without reading a whole topic.

    Control records and aborted ones take offsets, so how far back so many records reach is found out by trying.

    Args:
        watermarks: where each partition begins and ends.
        limit: how many are wanted.
        read: reads from these offsets to the ends.
    """
    reach = 2 * limit
    while True:
        starts = first_offsets(watermarks, None, reach)
        found = list(read(starts))
        counts = Counter(letter.record.partition for letter in found)
        if all(counts[each] >= limit or starts[each] == marks.log_start for each, marks in watermarks.items()):
            return newest(found, limit)
        reach *= 4


def newest(letters: Iterable[Letter], limit: int) -> list[Letter]:
    """Return the newest of them, the oldest of these first; no more than these are kept in memory."""
    return heapq.nlargest(limit, letters, key=_age)[::-1]


def _age(letter: Letter) -> tuple[int, int, int]:
    return letter.record.timestamp, letter.record.partition.number, letter.record.offset


def first_offsets(
    watermarks: Mapping[Partition, Watermarks], since: Mapping[Partition, int | None] | None, last: int | None
) -> dict[Partition, int]:
    """
    Return where to begin to read in each partition.

    Args:
        watermarks: where each begins and ends.
        since: the first offset at or after a time, None where there is none; without a time, None.
        last: how many records of each partition will do; None for all.
    """
    starts: dict[Partition, int] = {}
    for partition, marks in watermarks.items():
        start = marks.log_start if since is None else since.get(partition, marks.log_start)
        start = marks.last_stable if start is None else start
        starts[partition] = start if last is None else max(start, marks.last_stable - last)
    return starts


@dataclass(slots=True)
class Statistics:
    """How many dead letters there are, by reason and by source topic, and between which times, in milliseconds."""

    total: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    first: int | None = None
    last: int | None = None

    def add(self, letter: Letter) -> None:
        """Count one."""
        self.total += 1
        self.reasons[letter.reason] += 1
        self.topics[letter.errors.get("topic", "")] += 1
        self.first = letter.record.timestamp if self.first is None else min(self.first, letter.record.timestamp)
        self.last = letter.record.timestamp if self.last is None else max(self.last, letter.record.timestamp)

    @classmethod
    def of(cls, letters: Iterable[Letter]) -> Statistics:
        """Count them all."""
        counted = cls()
        for letter in letters:
            counted.add(letter)
        return counted

    def rows(self) -> Sequence[tuple[str, int, float]]:
        """Return reason, count and share of all in percent, the most frequent first."""
        return [(reason, count, 100 * count / self.total) for reason, count in self.reasons.most_common()]


def place_of(text: str) -> tuple[int, int]:
    """
    Return the partition and offset that `partition@offset` names.

    Raises:
        ValueError: it names none.
    """
    number, _, offset = text.partition("@")
    if not (number.isascii() and number.isdecimal() and offset.isascii() and offset.isdecimal()):
        msg = f"{text!r} is not a place: write partition@offset, as winnow dlq ls shows it"
        raise ValueError(msg)
    return int(number), int(offset)
