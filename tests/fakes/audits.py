"""A source, a sink and dead letters made of lists, for audits: what a service wrote, and the damage done since."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from app.headers import Header
from app.model import Destination, Partition, Watermarks
from app.operate.audit import Auditor, End, Readers, Step, no_step
from app.operate.judging import Verdict
from app.operate.ranges import Range, Routing
from app.records import Fate, OutgoingRecord, Record

RAW, OTHER, CLEAN, DEAD = Partition("raw", 0), Partition("raw", 2), Partition("clean", 0), Partition("dead", 0)


class Topic:
    """
    Records of some partitions, and where they begin and end.

    Args:
        records: its records, each at its offset.
        starts: the first offset of partitions from which retention has deleted records.
        lost: partitions without a leader.
    """

    def __init__(
        self,
        records: Iterable[Record] = (),
        starts: Mapping[Partition, int] | None = None,
        lost: Collection[Partition] = (),
    ) -> None:
        self.starts = dict(starts or {})
        self._records = [each for each in records if each.offset >= self.starts.get(each.partition, 0)]
        self._ends = {each.partition: each.offset + 1 for each in sorted(self._records, key=lambda each: each.offset)}
        self._lost = lost
        self.open_until = 0
        """For how many checks a transaction stays open."""
        self.read: list[tuple[Partition, int, int]] = []
        """What was read: partition, begin and end."""

    def batches(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int] | None = None
    ) -> Iterator[list[Record]]:
        assert ends is not None
        self.read += [(each, start, ends[each]) for each, start in starts.items() if start < ends[each]]
        asked = [each for each in self._records if each.partition in starts]
        yield [each for each in asked if starts[each.partition] <= each.offset < ends[each.partition]]
        yield []

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
        self.open_until -= 1
        begins = {each: self.starts.get(each, 0) for each in partitions if each not in self._lost}
        ends = {each: max(begin, self._ends.get(each, 0)) for each, begin in begins.items()}
        return {each: Watermarks(begins[each], 0 if self.open_until > 0 else end, end) for each, end in ends.items()}

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int | None]:
        known = [each for each in partitions if each not in self._lost]
        late = {
            each: [one for one in self._records if one.partition == each and one.timestamp >= milliseconds]
            for each in known
        }
        return {each: min((one.offset for one in found), default=None) for each, found in late.items()}


def fate(record: Record) -> Fate:
    """Return the outcome of a record: a line, if its value begins so."""
    if (record.value or b"").startswith(b"dropped"):
        return Fate(record, Partition("", -1), OutgoingRecord(None, None, [], 0), filtered="health")
    reason = "" if (record.value or b"").startswith(b"good") else "bad"
    value = record.value if reason else b"line of " + (record.value or b"")
    return Fate(
        record, DEAD if reason else CLEAN, OutgoingRecord(record.key, value, [], record.timestamp), reason, "why"
    )


class FakeCleanse:
    def of(self, records: Sequence[Record]) -> list[Fate]:
        return [fate(each) for each in records]

    def refused(self, record: Record, cause: str) -> Fate:
        raise NotImplementedError


def line(of: Record, at: int = 0, headers: Sequence[Header] = ()) -> Record:
    """Return the line of a record."""
    return Record(CLEAN, at, of.timestamp, of.key, fate(of).written.value, headers)


def named(of: Record) -> list[Header]:
    """Return the header by which a line names its record."""
    return [("winnow.source", f"{of.partition}@{of.offset}".encode())]


def letter(of: Record, at: int = 0, reason: str = "bad", more: Sequence[Header] = ()) -> Record:
    """Return the dead letter of a record. The record's headers come first."""
    errors = {
        "stage": "x",
        "topic": of.partition.topic,
        "partition": str(of.partition.number),
        "offset": str(of.offset),
    }
    errors["exception.class.name"] = reason
    headers = [(f"__connect.errors.{name}", text.encode()) for name, text in errors.items()]
    return Record(DEAD, at, of.timestamp, of.key, of.value, [*of.headers, *headers, *more])


SINK, DEAD_LETTERS = Destination("clean", 1, 1_000), Destination("dead", 1, 1_000)


@dataclass(slots=True)
class AuditedTopics:
    """
    The contents of the topics. Offsets of lines and dead letters are their positions.

    Args:
        source: the records of the source.
        lines: those of the sink.
        letters: the dead letters.
        ranges: what is audited.
        times: the period in which every line must have a record; None for a sample.
        taken: how many lines and how many dead letters retention has deleted.
        compacted: lines removed by compaction.
        starts: the first offset of source partitions from which retention has deleted records.
        lost: partitions without a leader.
        stable: whether no transaction is open in the sink.
        begins: the first offset of other output partitions from which retention has deleted all records.
    """

    source: list[Record]
    lines: list[Record]
    letters: list[Record]
    ranges: Mapping[Partition, Range]
    times: tuple[int, float] | None
    routing: Routing = field(default_factory=lambda: Routing(SINK, DEAD_LETTERS))
    taken: tuple[int, int] = (0, 0)
    compacted: Collection[int] = ()
    starts: Mapping[Partition, int] = field(default_factory=dict)
    lost: Collection[Partition] = ()
    stable: bool = True
    begins: Mapping[Partition, int] = field(default_factory=dict)

    def placed(self) -> list[Record]:
        """Return lines and dead letters with their offsets."""
        late = 10_000 if self.routing.sink.append_time else None
        lines = [
            each._replace(offset=at, timestamp=each.timestamp if late is None else late + at)
            for at, each in enumerate(self.lines)
            if at not in self.compacted
        ]
        return [*lines, *(each._replace(offset=at) for at, each in enumerate(self.letters))]

    def audit(self, step: Step = no_step) -> Verdict:
        """Return the result of an audit."""
        source = Topic(self.source, self.starts, self.lost)
        begins = {**dict(zip((CLEAN, DEAD), self.taken, strict=True)), **self.begins}
        output = Topic(self.placed(), begins, self.lost)
        places = {*begins, *(each.partition for each in self.lines)}
        ends = {each: End(marks.high_watermark, self.stable) for each, marks in output.watermarks(places).items()}
        readers = Readers(source, output, source, output)  # type: ignore[arg-type]  # all that an audit needs of topics
        return Auditor(FakeCleanse(), readers, self.routing, ends, self.times, step).compare([RAW, OTHER], self.ranges)
