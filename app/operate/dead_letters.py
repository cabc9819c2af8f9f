"""Dead letters with their origins and reasons, and how `winnow dlq` reads them. Changes nothing."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from app.driver.clients import Topics
from app.headers import ERRORS, as_text, ours, whole_number
from app.model import Partition, Watermarks, partitions_of
from app.operate.reading import Reader, Span, read, span_between, text_of, whole
from app.records import NO_TIMESTAMP, Record

NO_REASON = "(no reason)"
"""The reason of a record without error headers."""


class Letter(NamedTuple):
    """A record of the dead-letter topic; `errors` are its `__connect.errors.*` headers, perhaps another tool's."""

    record: Record
    errors: Mapping[str, str]
    reason: str
    detail: str
    topic_id: str
    origin: str
    """The source record, as `topic-partition@offset`; empty if the headers do not say."""

    @classmethod
    def of(cls, record: Record) -> Letter:
        told = ours(record.headers) or as_text(record.headers)
        errors = {name.removeprefix(ERRORS): text for name, text in told.items() if name.startswith(ERRORS)}
        reason, detail = errors.get("exception.class.name", NO_REASON), errors.get("exception.message", "")
        topic, number, offset = (errors.get(name, "") for name in ("topic", "partition", "offset"))
        origin = f"{topic}-{number}@{offset}" if topic else ""
        return cls(record, errors, reason, detail, errors.get("topic.id", ""), origin)

    @property
    def place(self) -> str:
        return f"{self.record.partition.number}@{self.record.offset}"

    def as_json(self) -> dict[str, Any]:
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
        key, value = text_of(self.record.key), text_of(self.record.value)
        headers = [[name, text_of(each)] for name, each in self.record.headers]
        return self.as_json() | {"key": key, "value": value, "headers": headers}


class Selection(NamedTuple):
    """A selection of dead letters: between two times in milliseconds since the epoch, and for some reasons or any."""

    since: int | None = None
    until: int | None = None
    reasons: Collection[str] = ()

    def takes(self, letter: Letter) -> bool:
        early = self.since is not None and letter.record.timestamp < self.since
        late = self.until is not None and letter.record.timestamp >= self.until
        return not (early or late) and (not self.reasons or letter.reason in self.reasons)


def newest(letters: Iterable[Letter], limit: int) -> list[Letter]:
    """Return the newest dead letters, oldest first; holds no others in memory."""
    age = attrgetter("record.timestamp", "record.partition.number", "record.offset")
    return heapq.nlargest(limit, letters, key=age)[::-1]


class DeadLetterReader:
    """The dead letters in a topic."""

    def __init__(self, topic: str, topics: Topics, reader: Reader) -> None:
        self._topic = topic
        self._topics = topics
        self._reader = reader

    def spans(self, marks: Mapping[Partition, Watermarks], selection: Selection) -> dict[Partition, Span]:
        """Return what to read of each partition so that no selected dead letter is missed."""
        begins: dict[Partition, int | None] = {each: of.log_start for each, of in marks.items()}
        if selection.since is not None:
            begins |= self._topics.offsets_at(marks, selection.since)
        return {each: span_between(of, begins[each], None) for each, of in marks.items()}

    def chosen(self, selection: Selection) -> Iterator[Letter]:
        return filter(selection.takes, self._between(self.spans(self.watermarks(), selection)))

    def newest(self, selection: Selection, limit: int) -> list[Letter]:
        if selection == Selection():
            return self._last_written(limit)
        return newest(self.chosen(selection), limit)

    def _last_written(self, limit: int) -> list[Letter]:
        """Return the newest dead letters; trial finds how far back: control and aborted records take offsets, too."""
        watermarks, reach = self.watermarks(), 2 * limit
        while True:
            starts = {each: max(marks.log_start, marks.last_stable - reach) for each, marks in watermarks.items()}
            spans = {each: Span(starts[each], marks.last_stable) for each, marks in watermarks.items()}
            found = list(self._between(spans))
            counts = Counter(letter.record.partition for letter in found)
            if all(counts[each] >= limit or starts[each] == marks.log_start for each, marks in watermarks.items()):
                return newest(found, limit)
            reach *= 4

    def at(self, number: int, offset: int) -> Letter | None:
        partition = Partition(self._topic, number)
        marks = self.watermarks(only=partition).get(partition)
        if marks is None or not marks.log_start <= offset < marks.last_stable:
            return None
        return next(self._between({partition: Span(offset, offset + 1)}), None)

    def watermarks(self, only: Partition | None = None) -> Mapping[Partition, Watermarks]:
        known = self._topics.source_topics([self._topic], None, ())[self._topic]
        partitions = [each for each in partitions_of([known]) if only in (None, each)]
        return whole(partitions, self._topics.watermarks(partitions))

    def _between(self, spans: Mapping[Partition, Span]) -> Iterator[Letter]:
        return map(Letter.of, chain.from_iterable(read(self._reader, spans)))


class Statistics:
    """Counts of dead letters by reason and source topic, and their time range in milliseconds."""

    def __init__(self, letters: Iterable[Letter]) -> None:
        self.reasons, self.topics = Counter[str](), Counter[str]()
        self.first: int | None = None
        self.last: int | None = None
        for letter in letters:
            at = letter.record.timestamp
            self.reasons[letter.reason] += 1
            self.topics[letter.errors.get("topic", "")] += 1
            if at != NO_TIMESTAMP:
                self.first = at if self.first is None else min(self.first, at)
                self.last = at if self.last is None else max(self.last, at)
        self.total = self.reasons.total()

    def rows(self) -> Sequence[tuple[str, int, float]]:
        return [(reason, count, 100 * count / self.total) for reason, count in self.reasons.most_common()]


def place_of(text: str) -> tuple[int, int]:
    """Parse `partition@offset`; raise ValueError if the text has another form."""
    if (place := re.fullmatch(r"(\d+)@(\d+)", text, re.ASCII)) is None:
        raise ValueError(f"{text!r} is not a place: write partition@offset, as winnow dlq ls shows it")
    return int(place[1]), int(place[2])
