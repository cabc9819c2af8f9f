"""The audit: each anomaly is planted, and found where it is; what is right is left alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import pytest

from app.errors import NotUsable
from app.headers import Header
from app.model import CommittedOffset, Destination, Partition, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata
from app.operate.audit import Comparison, Finding, Kind, Range, counted, shown, units, windows
from app.operate.auditing import Auditor, ranges, refuse_lost_times, wait_until_stable
from app.operate.lag import PartitionLag
from app.records import DeadLetter, Fate, Record
from tests.fakes import make_task_config

RAW, OTHER, CLEAN, DEAD = Partition("raw", 0), Partition("raw", 2), Partition("clean", 0), Partition("dead", 0)
WHOLE = Range(0, 100, 0, 100)


def source(offset: int, value: bytes = b"good", partition: Partition = RAW, timestamp: int | None = None) -> Record:
    return Record(partition, offset, 1_000 + offset if timestamp is None else timestamp, b"k", value, [])


def fate(record: Record, reason: str = "") -> Fate:
    reason = reason or ("" if (record.value or b"").startswith(b"good") else "bad")
    value = record.value if reason else b"line of " + (record.value or b"")
    return Fate(record, DEAD if reason else CLEAN, DeadLetter(record.key, value, [], record.timestamp), reason, "why")


def line(of: Record, at: int, value: bytes | None = None, headers: Sequence[Header] = ()) -> Record:
    return Record(CLEAN, at, of.timestamp, of.key, fate(of).written.value if value is None else value, headers)


def named(record: Record) -> list[Header]:
    """Return the header by which a line names its record."""
    return [("winnow.source", f"{record.partition}@{record.offset}".encode())]


def letter(of: Record, at: int, reason: str = "bad", value: bytes | None = None, more: Sequence[Header] = ()) -> Record:
    errors = {"topic": of.partition.topic, "partition": str(of.partition.number), "offset": str(of.offset)}
    errors["exception.class.name"] = reason
    headers = [(f"__connect.errors.{name}", text.encode()) for name, text in errors.items()]
    return Record(DEAD, at, of.timestamp, of.key, of.value if value is None else value, [*headers, *more])


def compare(
    records: Sequence[Record],
    lines: Iterable[Record] = (),
    letters: Iterable[Record] = (),
    judged: Range = WHOLE,
    *,
    timeless: bool = False,
) -> list[tuple[str, int, str]]:
    """Return what is found: kind, source offset, and where."""
    comparison = Comparison({RAW: judged, OTHER: judged}, timeless=timeless)
    comparison.expect(map(fate, records))
    for each in lines:
        comparison.line(each)
    for each in letters:
        comparison.letter(each)
    return [(str(each.kind), each.offset, each.found_at) for each in comparison.findings()]


A, B, C = source(1, b"good a"), source(2, b"good b"), source(4, b"good c")
BAD = source(3, b"rubbish")


class TestComparison:
    def test_all_is_well(self) -> None:
        """Lines in order, each once; a dead letter for each reject; other partitions may stand between."""
        foreign = source(1, b"good of another", OTHER)
        lines = [line(A, 0), line(foreign, 1), line(B, 2), line(C, 5)]

        assert [] == compare([A, B, BAD, C, foreign], lines, [letter(BAD, 0)])

    @pytest.mark.parametrize(
        ("lines", "letters", "expected"),
        [
            ([line(A, 0), line(C, 2)], [letter(BAD, 0)], [("lost", 2, "")]),
            ([line(A, 0), line(B, 1), line(C, 2)], [], [("lost", 3, "")]),
            ([line(A, 0), line(B, 1), line(A, 2), line(C, 3)], [letter(BAD, 0)], [("doubled", 1, "clean-0@2")]),
            ([line(A, 0), line(B, 1), line(C, 2)], [letter(BAD, 0), letter(BAD, 9)], [("doubled", 3, "dead-0@9")]),
            ([line(A, 0), line(B, 1, b"x"), line(C, 2)], [letter(BAD, 0)], [("changed", 2, "clean-0@1")]),
            ([line(A, 0), line(B, 1), line(C, 2)], [letter(BAD, 7, value=b"x")], [("changed", 3, "dead-0@7")]),
            ([line(A, 0), line(B, 1), line(C, 2)], [letter(BAD, 7, "other")], [("changed", 3, "dead-0@7")]),
            ([line(A, 0), line(C, 2)], [letter(BAD, 0), letter(B, 1)], [("changed", 2, "dead-0@1")]),
            ([line(A, 0), line(B, 1), line(BAD, 2, b"x"), line(C, 3)], [], [("changed", 3, "clean-0@2")]),
            ([line(B, 0), line(A, 1), line(C, 2)], [letter(BAD, 0)], [("out of order", 1, "clean-0@1")]),
        ],
    )
    def test_what_is_wrong(
        self, lines: list[Record], letters: list[Record], expected: list[tuple[str, int, str]]
    ) -> None:
        """Each anomaly is named with the record and the place; nothing else is."""
        assert expected == compare([A, B, BAD, C], lines, letters)

    def test_records_that_are_alike(self) -> None:
        """Several with one line are as many lines; one too few is lost, one too many is doubled."""
        twins = [source(offset, b"good", timestamp=7) for offset in (1, 2, 3)]

        assert [] == compare(twins, [line(each, at) for at, each in enumerate(twins)])
        assert [("lost", 3, "")] == compare(twins, [line(twins[0], 0), line(twins[0], 1)])
        assert ["doubled"] == [kind for kind, *_ in compare(twins, [line(twins[0], at) for at in range(4)])]

    def test_partitions_that_are_alike(self) -> None:
        """A line that two records could be is taken for the one that keeps the order."""
        first, twin, last = source(5, timestamp=7), source(1, timestamp=7, partition=OTHER), source(2, partition=OTHER)

        lines = [line(last, 0), line(first, 1), line(twin, 2)]

        assert [("out of order", 1, "clean-0@2")] == compare([twin, last, first], lines)
        assert [] == compare([twin, last, first], [line(first, 0), line(last, 1), line(twin, 2)])
        assert [] == compare([twin, last, first], [line(twin, 0), line(last, 1), line(first, 2)])

    def test_only_the_range_is_judged(self) -> None:
        """What is read on both sides explains lines, and is not missed."""
        assert [] == compare([A, B, C], [line(B, 0)], judged=Range(2, 3, 0, 9))
        assert [] == compare([A, B, C], [line(A, 0), line(A, 1), line(B, 2)], judged=Range(2, 3, 0, 9))

    def test_lines_of_a_replay(self) -> None:
        """They come late, and their dead letters stay; what a replay has put back is no double."""
        named = [("winnow.source", b"raw-0@1"), ("winnow.replays", b"1")]
        back = letter(BAD, 5, more=[("winnow.replays", b"1")])

        assert [("changed", 1, "dead-0@0")] == compare([A], [], [letter(A, 0)])
        assert [] == compare([A, B], [line(B, 0), line(A, 1, headers=named)], [letter(A, 0)])
        assert [] == compare([BAD], [], [letter(BAD, 0), back])

    def test_lines_that_name_their_records(self) -> None:
        """Two records that are exactly alike are told apart, and a line that is changed is found whatever it became."""
        twins = [source(offset, b"good", timestamp=7) for offset in (1, 2)]
        first, second = (line(each, at, headers=named(each)) for at, each in enumerate(twins))
        strange = line(BAD, 2, b"other", headers=named(BAD))._replace(timestamp=1)

        assert [] == compare(twins, [first, second])
        assert [("out of order", 1, "clean-0@9")] == compare(twins, [second, first._replace(offset=9)])
        assert [("doubled", 2, "clean-0@9"), ("lost", 1, "")] == sorted(
            compare(twins, [second, second._replace(offset=9)])
        )
        assert [("changed", 1, "clean-0@0")] == compare(twins[:1], [first._replace(key=b"x", timestamp=8)])
        assert [("changed", 3, "clean-0@2")] == compare([BAD], [strange])
        assert [("doubled", 1, "clean-0@9")] == compare([A], [line(A, 0), line(A, 9, headers=named(A))])

    def test_lines_that_have_lost_their_time(self) -> None:
        """Those that name their records are compared all the same; others only by their text, and that is told."""
        late = [line(each, at, headers=named(each))._replace(timestamp=9_999) for at, each in enumerate([A, B])]
        nameless = line(C, 2)._replace(timestamp=9_999)

        assert [] == compare([A, B, C], [*late, nameless], timeless=True)
        assert [("lost", 4, "")] == compare([A, B, C], late, timeless=True)
        assert [("changed", 1, "clean-0@0")] == compare([A], [late[0]._replace(value=b"x")], timeless=True)
        assert [("changed", 1, "clean-0@0")] == compare([A], late[:1])

        comparison = Comparison({RAW: WHOLE}, timeless=True)
        comparison.expect(map(fate, [A, C]))
        comparison.line(late[0])
        comparison.line(nameless)
        assert ([], 1) == (comparison.findings(), comparison.known_by_text)

    def test_what_the_topics_decided(self) -> None:
        """A line that the sink did not take then may lie in the dead letters."""
        assert [] == compare([A], [], [letter(A, 0, "refused")])

    def test_long_lines_are_cut(self) -> None:
        """A table is for a person."""
        assert "'" + "x" * 200 + "…'" == shown(b"x" * 300)


def test_each_kind_is_counted() -> None:
    """Also those that were not found."""
    one = Finding(Kind.LOST, RAW, 1, "", "not there")

    assert {"lost": 1, "doubled": 0, "changed": 0, "out_of_order": 0} == counted([one])
    assert ("lost", "raw", 0, 1, None, "not there") == tuple(one.as_json().values())


def test_what_belongs_together() -> None:
    """Source partitions that share one of the sink; with keys, all of them."""
    raw = [Partition("raw", number) for number in range(3)]

    found = units(raw, ("clean", 2), ("dead", 1), by_key=False, anywhere=False)
    by_key = units(raw, ("clean", 2), ("dead", 2), by_key=True, anywhere=False)
    (anywhere,) = units(raw[:1], ("clean", 2), ("dead", 3), by_key=False, anywhere=True)

    assert [([0, 2], [0], [0]), ([1], [1], [0])] == [tuple([x.number for x in part] for part in unit) for unit in found]
    assert [([0, 1, 2], [0, 1], [0, 1])] == [tuple([x.number for x in part] for part in unit) for unit in by_key]
    assert ([0], [0, 1], [0, 1, 2]) == tuple([x.number for x in part] for part in anywhere)


def test_windows() -> None:
    """They cover the range, each record once, and know what stands beside them."""
    whole = {RAW: Range(10, 110, 5, 112), OTHER: Range(0, 10, 0, 10)}

    found = windows(whole, 40, 10)

    assert [(10, 43), (43, 76), (76, 110)] == [(each[RAW].begin, each[RAW].end) for each in found]
    assert [(5, 53), (33, 86), (66, 112)] == [(each[RAW].known_from, each[RAW].known_to) for each in found]
    assert [(0, 3), (3, 6), (6, 10)] == [(each[OTHER].begin, each[OTHER].end) for each in found]


class TestRanges:
    def at(self, offset: int | None, since: int | None = None, log_start: int = 0) -> PartitionLag:
        metadata = "" if since is None else str(OffsetMetadata("id", since, Counts(1)))
        committed = None if offset is None else CommittedOffset(offset, metadata)
        return PartitionLag(RAW, committed, Watermarks(log_start, 9_000, 9_000))

    def test_what_is_done_is_judged(self) -> None:
        """Between the times, and no further than the service had come; a little more is read on both sides."""
        later = {RAW: CommittedOffset(8_000)}

        assert {RAW: Range(3_000, 5_000, 1_000, 7_000)} == ranges([self.at(7_500)], later, {RAW: 3_000}, {RAW: 5_000})
        assert {RAW: Range(3_000, 7_500, 1_000, 8_000)} == ranges([self.at(7_500)], later, {RAW: 3_000}, {})
        assert {RAW: Range(3_000, 7_500, 2_900, 7_500)} == ranges(
            [self.at(7_500, log_start=2_900)], {}, {RAW: 3_000}, {RAW: None}
        )

    def test_what_is_not_done_is_not_judged(self) -> None:
        """Where nothing is committed, nothing is that late, or the group began later."""
        assert {} == ranges([self.at(None)], {}, {RAW: 0}, {})
        assert {} == ranges([self.at(10)], {}, {RAW: None}, {})
        assert {} == ranges([self.at(10, since=10)], {}, {RAW: 0}, {})
        assert {RAW: Range(4, 10, 0, 10)} == ranges([self.at(10, since=4)], {}, {RAW: 0}, {})


class Topic:
    """Records of some partitions; a reader and what tells of their ends."""

    def __init__(self, *records: Record, open_until: int = 0) -> None:
        self._records = records
        self._open = open_until
        self.read: list[tuple[Partition, int, int]] = []

    def batches(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int] | None = None
    ) -> Iterator[list[Record]]:
        assert ends is not None
        self.read += [(each, start, ends[each]) for each, start in starts.items() if start < ends[each]]
        asked = [each for each in self._records if each.partition in starts]
        yield [each for each in asked if starts[each.partition] <= each.offset < ends[each.partition]]
        yield []

    def _of(self, partition: Partition) -> list[Record]:
        return [each for each in self._records if each.partition == partition]

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
        self._open -= 1
        ends = {each: max((record.offset + 1 for record in self._of(each)), default=0) for each in partitions}
        return {each: Watermarks(0, 0 if self._open > 0 else end, end) for each, end in ends.items()}

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int | None]:
        late = {each: [one.offset for one in self._of(each) if one.timestamp >= milliseconds] for each in partitions}
        return {each: min(offsets, default=None) for each, offsets in late.items()}


class Cleanse:
    def of(self, records: Sequence[Record]) -> list[Fate]:
        return [fate(each) for each in records]


def audit(
    records: Collection[Record],
    output: Topic,
    read: Callable[[int], object] = lambda _: None,
    *,
    timeless: bool = False,
) -> list[str]:
    (unit,) = units([RAW], ("clean", 1), ("dead", 1), by_key=False, anywhere=False)
    auditor = Auditor(Cleanse(), Topic(*records), output, output, read, timeless=timeless)  # type: ignore[arg-type]  # what it asks of topics
    return [str(each.kind) for each in auditor.compare(unit, {RAW: Range(1, 10, 0, 10)}).findings()]


class TestAuditor:
    def test_only_what_may_hold_the_lines_is_read(self) -> None:
        """From the oldest record on; and no further than a little later, if nothing is missing."""
        old, late = source(0, timestamp=5), source(50, timestamp=5_000_000)
        output = Topic(line(old, 0), line(A, 1), line(late, 2), letter(BAD, 0))
        counts: list[int] = []

        assert [] == audit([A, BAD], output, counts.append)
        assert [(CLEAN, 1, 2), (DEAD, 0, 1)] == output.read
        assert [2] == counts

    def test_a_line_that_comes_much_later(self) -> None:
        """Another source partition was far ahead: before a line is lost, all is read."""
        late = source(50, timestamp=5_000_000)

        assert [] == audit([A, B], Topic(line(A, 0), line(late, 1), line(B, 2)))

    def test_a_dead_letter_with_another_time(self) -> None:
        """Its time may be earlier than that of its record: before it is lost, all is read."""
        early = letter(BAD, 0)._replace(timestamp=3)

        assert [] == audit([A, BAD], Topic(line(A, 0), early))
        assert ["lost"] == audit([A, BAD], Topic(line(A, 0)))

    def test_a_line_that_is_older_than_its_record_says(self) -> None:
        """A producer's clock was ahead, and the sink's broker has set the time: before a line is lost, all is read."""
        early = line(A, 0, headers=named(A))._replace(timestamp=5)
        output = Topic(early, line(B, 1, headers=named(B)))

        assert [] == audit([A, B], output, timeless=True)
        assert ["lost"] == audit([A, B], output)

    def test_nothing_to_audit(self) -> None:
        """No record, no question."""
        assert [] == audit([], Topic())


@pytest.mark.parametrize(
    ("append_time", "lineage", "known"), [(False, False, True), (True, True, True), (True, False, False)]
)
def test_lines_that_cannot_be_known(append_time: bool, lineage: bool, known: bool) -> None:
    """They have neither the time of their record nor a header."""
    sink = Destination("clean", 1, 1_000, append_time=append_time)
    tasks = make_task_config(sink=sink, lineage=lineage)

    if known:
        refuse_lost_times(tasks)
        return
    with pytest.raises(
        NotUsable, match=r"'clean' has message\.timestamp\.type LogAppendTime.*set lineage\.headers to true"
    ):
        refuse_lost_times(tasks)


def test_a_transaction_that_ends_soon() -> None:
    """What is open is waited for, not for ever."""
    slept: list[float] = []

    assert wait_until_stable(Topic(line(A, 0), open_until=4), [CLEAN], slept.append)  # type: ignore[arg-type]
    assert 2 == len(slept)
    assert not wait_until_stable(Topic(line(A, 0), open_until=1_000), [CLEAN], slept.append)  # type: ignore[arg-type]
