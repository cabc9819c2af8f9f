"""What one-off commands read of Kafka: bounded ranges of records, and an answer from every partition."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from app.errors import Unreachable
from app.model import CommittedOffset, Partition, Watermarks
from app.records import Fate, Record

T = TypeVar("T")
Offsets = Mapping[Partition, CommittedOffset]
"""The committed offsets of some partitions."""
FirstOffsets = Mapping[Partition, int | None]
"""The first offset of each partition at or after a time; None if no record is that late."""


class Reader(Protocol):
    """Reads committed records; see `app.kafka.records`."""

    def batches(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int] | None = None
    ) -> Generator[list[Record]]:
        """Yield the records of some partitions between these offsets; without ends, for ever."""


class Cleanse(Protocol):
    """Computes the outcomes that a task would give; see `app.executor.fates`."""

    def of(self, records: Sequence[Record]) -> list[Fate]:
        """Return the outcome of each record, in order."""

    def refused(self, record: Record, cause: str) -> Fate:
        """Return the outcome of a record whose line Kafka rejects."""


class Span(NamedTuple):
    """Offsets from `begin` up to but excluding `end`."""

    begin: int
    end: int

    @property
    def length(self) -> int:
        return max(0, self.end - self.begin)


def read(
    reader: Reader, spans: Mapping[Partition, Span], advance: Callable[[int], object] = lambda _: None
) -> Iterator[list[Record]]:
    """
    Yield the records of these spans, reading all partitions in parallel.

    `advance` receives how many offsets are passed, those without a record, too.
    """
    at, ends = ({partition: span[side] for partition, span in spans.items()} for side in (0, 1))
    for records in filter(None, reader.batches(dict(at), ends)):
        yield records
        now = {each.partition: each.offset + 1 for each in records}
        advance(sum(offset - at[each] for each, offset in now.items()))
        at |= now


def span_between(marks: Watermarks, begin: int | None, end: int | None) -> Span:
    """Return the offsets between two times; an offset is None if no record is that late."""
    last = marks.last_stable
    return Span(last if begin is None else begin, last if end is None else end)


def whole(partitions: Iterable[Partition], answers: Mapping[Partition, T]) -> Mapping[Partition, T]:
    """Return the answers; raise Unreachable if one is missing, which must not count as empty."""
    silent = sorted(set(partitions) - answers.keys())
    if silent:
        others = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
        cause = f"{silent[0]}{others} has no leader, or its broker does not answer, so nothing was done"
        raise Unreachable(cause, "bring its broker back, and try again")
    return answers


def text_of(value: bytes | None) -> str | None:
    """Return bytes as text; bytes that are not UTF-8 are escaped."""
    return None if value is None else value.decode(errors="backslashreplace")


def printable(text: str) -> str:
    """Return the text without characters that end the line or move the cursor: a record may hold any."""
    escaped = (each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return text if text.isprintable() else "".join(escaped)
