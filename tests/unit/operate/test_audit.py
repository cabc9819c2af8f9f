"""What an audit reads and judges, apart from the table of anomalies in `test_audit_table`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import product

import pytest

from app.errors import NotUsable, WinnowError
from app.executor.fates import Fates
from app.executor.parse import make_parser, parse
from app.model import CommittedOffset, Destination, Partition, Plugin, TaskConfig, Watermarks
from app.offsets.metadata import Counts, OffsetMetadata
from app.operate import matching
from app.operate.audit import End, Readers, Scope, refuse_lost_times, stable_ends, unlimited
from app.operate.expected import Origin
from app.operate.findings import Defect, Finding, counted, shown
from app.operate.judging import Verdict
from app.operate.lag import PartitionLag
from app.operate.ranges import Asked, LeftOut, Range, Routing, Why, newest, packed, ranges, sampled, together
from app.operate.reading import Span
from app.records import Record
from tests.fakes import make_task_config
from tests.fakes.audits import CLEAN, DEAD, DEAD_LETTERS, OTHER, RAW, SINK, AuditedTopics, Topic, letter, line, named
from tests.fakes.patients import Patient

REPLAYED = ("winnow.replays", b"1")
LINEAGE = Routing(SINK, DEAD_LETTERS, lineage=True)
WHOLE = Range([Span(0, 100)], [Span(0, 100)])


def source(offset: int, value: bytes = b"good", partition: Partition = RAW, timestamp: int | None = None) -> Record:
    return Record(partition, offset, 1_000 + offset if timestamp is None else timestamp, b"k", value, [])


def audit(
    records: list[Record], lines: Sequence[Record], judged: Range = WHOLE, routing: Routing | None = None
) -> Verdict:
    routing = routing or Routing(SINK, DEAD_LETTERS)
    return AuditedTopics(records, list(lines), [], {RAW: judged, OTHER: judged}, (0, math.inf), routing).audit()


def found(*arguments: object) -> list[tuple[str, int | None, str]]:
    findings = audit(*arguments).findings  # type: ignore[arg-type]  # as above
    return [(str(each.kind), each.origin.offset if each.origin else None, each.found_at) for each in findings]


A, B, C = source(1, b"good a"), source(2, b"good b"), source(4, b"good c")


class TestMatching:
    def test_records_that_are_alike(self) -> None:
        """Several identical records need as many lines; one too few is lost, one too many is doubled."""
        twins = [source(offset, timestamp=7) for offset in (1, 2, 3)]

        assert [] == found(twins, [line(each) for each in twins])
        assert [("lost", 3, "")] == found(twins, [line(twins[0])] * 2)
        assert [("doubled", 1, "clean-0@3")] == found(twins, [line(twins[0])] * 4)
        late = [("out of order", 1, "clean-0@1"), ("out of order", 2, "clean-0@2"), ("lost", 3, "")]
        assert late == found([*twins, C], [line(C), line(twins[0]), line(twins[0])])

    def test_the_record_that_keeps_the_order(self) -> None:
        """A line behind that of a later record is of the twin that comes still later."""
        twins = [source(offset, timestamp=7) for offset in (1, 5)]

        assert [("lost", 1, "")] == found([twins[0], C, twins[1]], [line(C), line(twins[1])])

    def test_partitions_that_are_alike(self) -> None:
        """Identical lines of two partitions have no known order, so none is judged, but none may be missing."""
        first, twin, last = source(5, timestamp=7), source(1, timestamp=7, partition=OTHER), source(2, partition=OTHER)
        records = [twin, last, first]

        assert [] == found(records, [line(first), line(last), line(twin)])
        assert [] == found(records, [line(last), line(first), line(twin)])
        assert ["lost"] == [kind for kind, *_ in found(records, [line(last), line(first)])]

    def test_a_line_in_the_wrong_partition(self) -> None:
        """The record's line is missing, and the line elsewhere has no record."""
        routing = Routing(Destination("clean", 2, 1_000), DEAD_LETTERS)
        other = source(1, partition=Partition("raw", 1))

        assert [("unexplained", None, "clean-0@0")] == found([other], [line(other)], WHOLE, routing)
        routing = Routing(Destination("clean", 3, 1_000), DEAD_LETTERS)
        elsewhere = line(A)._replace(partition=Partition("clean", 2))
        assert [("changed", 1, "clean-2@0")] == found([A], [elsewhere], WHOLE, routing)

    def test_a_line_in_any_partition(self) -> None:
        """Where lines name their records there may have been fewer partitions once, also before they did."""
        elsewhere = line(A)._replace(partition=Partition("clean", 1))

        assert [] == found([A], [elsewhere], WHOLE, replace(LINEAGE, sink=Destination("clean", 2, 1_000)))

    def test_the_first_record_of_all(self) -> None:
        """Its offset is 0, and it is in order."""
        first = source(0)

        assert [] == found([first], [line(first)])

    def test_what_a_filter_drops_is_nowhere(self) -> None:
        """A line or a dead letter of it is a finding; one that names it says which filter."""
        records = [A, dropped := source(2, b"dropped"), C]
        right = [line(A), line(C)]

        verdict = audit(records, right)
        assert (3, 1, []) == (verdict.judged, verdict.filtered, verdict.findings)
        of_it = Record(CLEAN, 0, dropped.timestamp, dropped.key, b"line", named(dropped))
        (finding,) = audit(
            records, [line(A, headers=named(A)), of_it, line(C, headers=named(C))], routing=LINEAGE
        ).findings
        assert (Defect.CHANGED, "dropped now by the filter health, found 'line'") == (finding.kind, finding.detail)
        assert [("unexplained", None, "clean-0@2")] == found(records, [*right, of_it._replace(headers=[])])
        topics = AuditedTopics(records, right, [letter(dropped)], {RAW: WHOLE, OTHER: WHOLE}, (0, math.inf))
        assert ["rejected then for bad, now dropped by the filter health"] == [
            each.detail for each in topics.audit().findings
        ]

    def test_a_record_that_is_read_twice(self) -> None:
        """It counts once."""
        verdict = audit([A, A], [line(A)])

        assert (1, []) == (verdict.judged, verdict.findings)

    def test_only_the_range_is_judged(self) -> None:
        """Records read on both sides explain lines, but need none themselves."""
        judged = Range([Span(2, 3)], [Span(0, 9)])

        assert [] == found([A, B, C], [line(B)], judged)
        assert [] == found([A, B, C], [line(A), line(A), line(B)], judged)
        assert [] == found([A, B, C], [line(B), line(A)], judged)

    def test_lines_that_name_their_records(self) -> None:
        """Identical records are told apart, and a changed line is found whatever it became."""
        twins = [source(offset, timestamp=7) for offset in (1, 2)]
        first, second = (line(each, headers=named(each)) for each in twins)
        strange = first._replace(key=b"x", value=b"y", timestamp=9)

        assert [] == found(twins, [first, second], WHOLE, LINEAGE)
        assert [("out of order", 1, "clean-0@1")] == found(twins, [second, first], WHOLE, LINEAGE)
        assert [("lost", 1, ""), ("doubled", 2, "clean-0@1")] == found(twins, [second, second], WHOLE, LINEAGE)
        assert [("changed", 1, "clean-0@0")] == found(twins[:1], [strange], WHOLE, LINEAGE)

    def test_lines_that_are_known_by_their_text(self) -> None:
        """If the broker sets timestamps, lines without a header are matched by text alone, and the count says so."""
        routing = Routing(Destination("clean", 1, 1_000, append_time=True), DEAD_LETTERS, lineage=True)
        old = line(source(9, b"good of before"))

        verdict = audit([A, C], [line(A, headers=named(A)), line(C), old], WHOLE, routing)

        assert (2, 1, [], {Why.UNNAMED: 1}) == (
            verdict.judged,
            verdict.known_by_text,
            verdict.findings,
            +verdict.not_judged,
        )

    def test_a_line_that_names_a_record_whose_text_was_found(self) -> None:
        """The line without a header was of another record, and that one cannot be told from this one."""
        routing = Routing(Destination("clean", 1, 1_000, append_time=True), DEAD_LETTERS, lineage=True)

        verdict = audit([A], [line(A), line(A, headers=named(A))], WHOLE, routing)

        assert (1, 0, []) == (verdict.judged, verdict.known_by_text, verdict.findings)
        assert {Why.UNNAMED: 1} == +verdict.not_judged

    def test_too_much_is_strange(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The audit ends before it runs out of memory."""
        monkeypatch.setattr(matching, "MOST_STRANGE", 1)

        nobody = [line(each, headers=named(each)) for each in (A, B)]
        for records, lines, letters in (
            ([A, B], [], []),
            ([], [line(A), line(A)], []),
            ([], nobody, []),
            ([], [], [letter(A), letter(B)]),
        ):
            with pytest.raises(WinnowError, match=r"more than 1 records of raw or lines of clean.*--sample"):
                AuditedTopics(records, lines, letters, {RAW: WHOLE}, (0, math.inf), LINEAGE).audit()

    def test_many_lines_of_records_that_are_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are no finding, and hide none: those before the group or deleted, and all of another partition."""
        monkeypatch.setattr(matching, "MOST_STRANGE", 2)
        before, later = [source(each) for each in (1, 2, 3)], Range([Span(4, 9)], [Span(4, 9)])
        lines, twice = [*map(line, before), line(C)], [*map(line, before), line(C), line(C)]
        doubled = [(Defect.DOUBLED, "clean-0@4")]

        for records, starts in (([*before, C], {}), ([C], {RAW: 4})):
            for written, findings in ((lines, []), (twice, doubled)):
                topics = AuditedTopics(records, written, [], {RAW: later, OTHER: later}, (0, math.inf), starts=starts)
                verdict = topics.audit()
                assert (1, findings) == (verdict.judged, [(each.kind, each.found_at) for each in verdict.findings])
                assert 1 == verdict.not_judged[Why.TOO_MANY]
        others = [source(each, partition=OTHER) for each in (1, 2, 3)]
        by_name = [line(each, headers=named(each)) for each in (*others, C)]
        verdict = AuditedTopics([*others, C], by_name, [], {RAW: later}, (0, math.inf), LINEAGE).audit()
        assert (1, [], {}) == (verdict.judged, verdict.findings, +verdict.not_judged)

    def test_each_step_says_how_much_there_is(self) -> None:
        """First the source is read, then the output; all offsets of a step are done at its end."""
        begun: list[tuple[str, int, list[int]]] = []

        def step(doing: str, offsets: int) -> Callable[[int], object]:
            begun.append((doing, offsets, []))
            return begun[-1][2].append

        log = Range([Span(0, 3)], [Span(0, 3)])
        AuditedTopics([A, B], [line(A), line(B)], [], {RAW: log}, (0, math.inf)).audit(step)

        assert [("reading the source", 3, 3), ("comparing the output", 2, 2)] == [
            (doing, offsets, sum(done)) for doing, offsets, done in begun if offsets
        ]

    def test_rejects_are_not_strange(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rejects with correct dead letters take no memory, however many there are."""
        monkeypatch.setattr(matching, "MOST_STRANGE", 1)
        rejects = [source(offset, b"bad") for offset in (1, 2)]

        verdict = AuditedTopics(rejects, [], list(map(letter, rejects)), {RAW: WHOLE}, (0, math.inf)).audit()

        assert (2, []) == (verdict.judged, verdict.findings)

    def test_a_replay_that_has_written_another_line(self) -> None:
        """The record was no reject, so its line is known."""
        other = line(A, headers=[*named(A), REPLAYED])._replace(value=b"other")

        assert [("changed", 1, "clean-0@0")] == found([A], [other], WHOLE, LINEAGE)

    def test_a_replay_of_one_of_two_that_are_alike(self) -> None:
        """The line without a header is that of the other one, also where the dead letter is found last."""
        one, other = (source(offset, timestamp=7) for offset in (1, 2))
        lines = [line(other), line(one, headers=[*named(one), REPLAYED])]
        early = letter(one, reason="refused")._replace(timestamp=5)

        findings = AuditedTopics([one, other, C], lines, [early], {RAW: WHOLE}, (0, math.inf), LINEAGE).audit().findings

        assert [(Defect.LOST, Origin(RAW, 4))] == [(each.kind, each.origin) for each in findings]

    def test_one_of_those_that_are_alike_was_refused(self) -> None:
        """Lines are of the others first; one more is of that one, which has both then, and late."""
        twins = [source(offset, timestamp=7) for offset in (1, 2, 3)]
        letters = [letter(twins[0], reason="refused")]

        late = [Defect.BOTH, Defect.OUT_OF_ORDER]
        for lines, kinds in ((2, []), (3, late), (4, [*late, Defect.DOUBLED])):
            topics = AuditedTopics(twins, [line(twins[0])] * lines, letters, {RAW: WHOLE}, (0, math.inf))
            assert sorted(kinds) == sorted(each.kind for each in topics.audit().findings)

    def test_a_line_of_a_reject_that_was_put_back(self) -> None:
        """It has both; that the line is another one than expected goes without saying."""
        bad = source(3, b"bad")
        letters = [letter(bad), letter(bad, more=[REPLAYED])]

        findings = (
            AuditedTopics(
                [bad],
                [line(bad, headers=named(bad))._replace(value=b"other")],
                letters,
                {RAW: WHOLE},
                (0, math.inf),
                LINEAGE,
            )
            .audit()
            .findings
        )

        assert [Defect.BOTH] == [each.kind for each in findings]

    def test_a_record_of_somebody_else_among_the_dead_letters(self) -> None:
        """It says nothing of where it came from, and is passed over."""
        strange = letter(A)._replace(headers=[])

        assert [] == AuditedTopics([A], [line(A)], [strange], {RAW: WHOLE}, (0, math.inf)).audit().findings

    def test_a_dead_letter_that_is_found_last(self) -> None:
        """Its record has a line as well, which was read before it."""
        early = letter(A, reason="refused")._replace(timestamp=5)

        findings = AuditedTopics([A, C], [line(A)], [early], {RAW: WHOLE}, (0, math.inf)).audit().findings

        assert [(Defect.BOTH, Origin(RAW, 1)), (Defect.LOST, Origin(RAW, 4))] == [
            (each.kind, each.origin) for each in findings
        ]

    def test_compaction_deletes_what_is_earlier(self) -> None:
        """It takes no line for one of an earlier record; for one of nobody knows which, it may have."""
        compacted = replace(LINEAGE, sink=replace(SINK, compacted=True))
        elsewhere = source(500)

        verdict = audit([A], [line(elsewhere, headers=[*named(elsewhere), REPLAYED])], WHOLE, compacted)

        assert [("lost", 2, "")] == found([A, B], [line(A, headers=named(A))], WHOLE, compacted)
        assert (0, [], {Why.COMPACTED: 1}) == (verdict.judged, verdict.findings, +verdict.not_judged)
        lines = [line(A, headers=named(A))._replace(value=b"other"), line(B, headers=named(B))]
        assert [("changed", 1, "clean-0@0")] == found([A, B], lines, WHOLE, compacted)

    def test_what_a_replay_writes_late_tells_nothing_of_retention(self) -> None:
        """A replayed line comes after deleted ones, although its record came first."""
        late = line(A, headers=[*named(A), REPLAYED])
        topics = AuditedTopics([A, B, C], [line(B), line(C), late], [], {RAW: WHOLE}, (0, math.inf), taken=(2, 0))

        verdict = topics.audit()

        assert (1, [], {Why.EXPIRED: 2}) == (verdict.judged, verdict.findings, +verdict.not_judged)

    @pytest.mark.parametrize(
        ("now", "expired"), [(1_001, True), (1_002, False), (1_902, False), (1_903, True), (9_999, True)]
    )
    @pytest.mark.parametrize(
        ("routing", "emptied"),
        [({"lineage": True}, Partition("clean", 1)), ({"by_key": True}, Partition("clean", 1)), ({}, DEAD)],
    )
    def test_what_retention_cannot_have_taken(
        self, routing: dict[str, bool], emptied: Partition, now: int, expired: bool
    ) -> None:
        """The output of a record that is too young is lost, also where a partition is empty that it may be in."""
        sink = replace(SINK, partitions=1 if emptied == DEAD else 2, retention=1_000)
        layout = Routing(sink, replace(DEAD_LETTERS, retention=1_000), **routing, now=now)
        lines = [line(each, headers=named(each) if layout.lineage else []) for each in (A, C)]

        verdict = AuditedTopics([A, B, C], lines, [], {RAW: WHOLE}, (0, math.inf), layout, begins={emptied: 5}).audit()

        assert ([] if expired else [(Defect.LOST, B.offset)]) == [
            (each.kind, each.origin and each.origin.offset) for each in verdict.findings
        ]
        assert {Why.EXPIRED: 1} == +verdict.not_judged if expired else not +verdict.not_judged

    def test_each_topic_has_its_retention(self) -> None:
        """A dead letter may be deleted although the sink would have kept a line; without a known one, both may be."""
        bad, gone = source(2, b"bad"), {CLEAN: 5, DEAD: 5}
        for sink, dead, record, kinds in (
            (1_000, None, bad, []),
            (None, 1_000, bad, [Defect.LOST]),
            (1_000, None, B, []),
            (None, 1_000, B, []),
            (1_000, 1_000, B, [Defect.LOST]),
        ):
            layout = Routing(replace(SINK, retention=sink), replace(DEAD_LETTERS, retention=dead), now=1_500)
            topics = AuditedTopics([record], [], [], {RAW: WHOLE}, (0, math.inf), layout, begins=gone)

            assert kinds == [each.kind for each in topics.audit().findings]

    def test_a_line_that_names_what_the_source_does_not_hold(self) -> None:
        """Retention took what lay before the start of the partition, and nothing after it."""
        taken, nothing = source(2), source(3)
        lines = [line(each, headers=named(each)) for each in (taken, nothing, C)]

        verdict = AuditedTopics([C], lines, [], {RAW: WHOLE}, (0, math.inf), LINEAGE, starts={RAW: 3}).audit()

        assert ["clean-0@1"] == [each.found_at for each in verdict.findings]
        assert {Why.EXPIRED: 3 + 1} == +verdict.not_judged

    def test_a_dead_letter_that_is_put_back_tells_nothing_of_retention(self) -> None:
        """As above."""
        first, second = source(1, b"bad"), source(2, b"bad")
        letters = [letter(first), letter(second), letter(first, more=[REPLAYED])]

        verdict = AuditedTopics([first, second], [], letters, {RAW: WHOLE}, (0, math.inf), taken=(0, 2)).audit()

        assert (1, [], {Why.EXPIRED: 1}) == (verdict.judged, verdict.findings, +verdict.not_judged)

    @pytest.mark.parametrize(
        ("then", "now", "is_of_it"),
        [
            ("id-1", "id-2", False),
            ("id-2", "id-2", True),
            ("", "id-2", True),
            ("id-1", "", True),
            ("A" * 22, "id-2", True),
        ],
    )
    def test_output_of_a_deleted_topic_with_the_same_name(self, then: str, now: str, is_of_it: bool) -> None:
        """Neither its dead letter nor a replay's line is that of the record at this place; an unknown id is any."""
        bad, good = source(5, b"bad"), source(5, b"good")
        topic_id = ("__connect.errors.topic.id", then.encode())
        more = [topic_id] if then else []
        of_then, replayed = letter(bad, more=more), line(bad, headers=[*named(bad), *more, REPLAYED])
        judged = {RAW: replace(WHOLE, topic_id=now)}

        def kinds(record: Record, lines: Sequence[Record], letters: Sequence[Record]) -> list[Defect]:
            topics = AuditedTopics([record], list(lines), list(letters), judged, (0, math.inf))
            return [each.kind for each in topics.audit().findings]

        for lines, letters in (([replayed], []), ([], [of_then]), ([replayed], [of_then])):
            assert ([] if is_of_it else [Defect.LOST]) == kinds(bad, lines, letters)
        assert ([Defect.DOUBLED] if is_of_it else []) == kinds(good, [line(good), replayed], [])
        assert ([Defect.BOTH, Defect.CHANGED] if is_of_it else []) == kinds(good, [line(good)], [of_then])

    def test_a_dead_letter_of_a_deleted_topic_tells_nothing_of_retention(self) -> None:
        """Its record came before all those of the new topic, whatever its offset."""
        first, second = source(1, b"bad"), source(2, b"bad")
        of_then = letter(source(1, b"bad"), more=[("__connect.errors.topic.id", b"id-1")])
        letters = [letter(first), of_then, letter(second)]
        judged = {RAW: replace(WHOLE, topic_id="id-2")}

        verdict = AuditedTopics([first, second], [], letters, judged, (0, math.inf), taken=(0, 1)).audit()

        assert (1, [], {Why.EXPIRED: 1}) == (verdict.judged, verdict.findings, +verdict.not_judged)

    def test_a_replay_on_a_record_that_bears_our_header(self) -> None:
        """The record's own headers come before those that Winnow adds."""
        bad = source(3, b"bad")._replace(headers=[REPLAYED])
        topics = AuditedTopics(
            [bad], [], [letter(bad), letter(bad, more=[("winnow.replays", b"2")])], {RAW: WHOLE}, (0, 9_999)
        )

        assert [] == topics.audit().findings


@pytest.mark.parametrize(
    ("key", "value", "hashed", "wrong"),
    [
        (b"k", b"bad", b"bad value", False),
        (None, b"", b"bad value", False),
        (b"k", b"bad", b"bad valve", True),
        (b"k", b"dab", b"bad value", True),
        (b"l", b"bad", b"bad value", True),
    ],
)
def test_a_dead_letter_that_was_cut(key: bytes | None, value: bytes, hashed: bytes, wrong: bool) -> None:
    """How much is left depends on what the topic took then; the message has the hash of what was cut."""
    record, message = source(1, b"bad value"), f"why; cut from 9 bytes, SHA-256 {sha256(hashed).hexdigest()}"
    cut = letter(record, 0, "bad", [("__connect.errors.exception.message", message.encode())])
    cut = cut._replace(key=key, value=value)

    verdict = AuditedTopics([record], [], [cut], {RAW: WHOLE}, (0, math.inf)).audit()

    assert [(Defect.CHANGED, "dead-0@0")] * wrong == [(each.kind, each.found_at) for each in verdict.findings]


def test_each_kind_is_counted() -> None:
    """Kinds without a finding count as 0."""
    one = Finding(Defect.LOST, Origin(RAW, 1), "", "not there")

    assert 1 == counted([one])["lost"] == sum(counted([one]).values())
    assert ("lost", "raw", 0, 1, None, "not there") == tuple(one.as_json().values())
    assert ("unexplained", None, None, None, "clean-0@7", "") == tuple(
        Finding(Defect.UNEXPLAINED, None, "clean-0@7", "").as_json().values()
    )
    assert "'" + "x" * 200 + "…'" == shown(b"x" * 300)


def test_what_belongs_together() -> None:
    """Source partitions that share a sink partition; with keys or headers, all. Small groups are read together."""
    raw = [Partition("raw", number) for number in range(3)]
    sink = Destination("clean", 2, 1_000)
    first, second, third = raw
    dead = replace(DEAD_LETTERS, partitions=2)

    assert [[first, third], [second]] == together(Routing(sink, DEAD_LETTERS), raw)
    assert (
        [raw]
        == together(Routing(sink, DEAD_LETTERS, by_key=True), raw)
        == together(Routing(sink, DEAD_LETTERS, lineage=True), raw)
    )
    assert [0] == [each.number for each in Routing(sink, dead).letters(third)]
    assert [0, 1] == [each.number for each in Routing(sink, dead, lineage=True).letters(third)]
    assert [[first, third, second]] == packed([[first, third], [second]], dict.fromkeys(raw, 5), 15)
    assert [[first, third], [second]] == packed([[first, third], [second]], dict.fromkeys(raw, 5), 14)
    assert [[first, third, second]] == packed([[first, third], [second]], {first: 5, second: 10}, 15)


def done(offset: int, since: int = 0, marks: Watermarks = Watermarks(0, 9_000, 9_000)) -> PartitionLag:  # noqa: B008  # it is frozen
    """Return the lag of a partition whose group began its work at an offset."""
    return PartitionLag(RAW, CommittedOffset(offset, str(OffsetMetadata("id-1", since=since))), marks, topic_id="id-1")


@pytest.mark.parametrize(
    ("at", "first", "judged", "known"),
    [
        (done(9_000), 0, (8_900, 9_000), (6_900, 9_999)),
        (done(9_000), 8_990, (8_990, 9_000), (6_990, 9_999)),
        (done(9_000, since=8_950), 0, (8_950, 9_000), (6_950, 9_999)),
        (done(9_000, marks=Watermarks(8_970, 9_000, 9_000)), 0, (8_970, 9_000), (8_970, 9_999)),
        (done(5_000), 0, (4_900, 5_000), (2_900, 7_000)),
        (done(9_999, marks=Watermarks(0, 9_000, 9_999)), 0, (8_900, 9_000), (6_900, 9_999)),
    ],
)
def test_the_newest_records(at: PartitionLag, first: int, judged: tuple[int, int], known: tuple[int, int]) -> None:
    """At most 100 that are done, since the group began, after a time and after what retention has deleted."""
    later = {RAW: CommittedOffset(9_999)}

    assert ({RAW: Range([Span(*judged)], [Span(*known)], "id-1")}, []) == newest([at], later, {RAW: first}, 100)


def test_where_there_are_no_newest_records() -> None:
    """A partition without an offset or a recent record has none; one without a leader is left out."""
    no_offset, no_leader = PartitionLag(RAW, None, Watermarks(0, 9, 9)), PartitionLag(RAW, CommittedOffset(5), None)

    assert ({}, []) == newest([no_offset], {}, {RAW: 0}, 100)
    assert ({}, []) == newest([done(5)], {}, {RAW: None}, 100)
    assert ({}, []) == newest([done(5)], {}, {RAW: 5}, 100)
    assert ({}, [LeftOut(Why.NO_LEADER, RAW, None)]) == newest([no_leader], {}, {RAW: 0}, 100)
    assert ({}, [LeftOut(Why.NO_LEADER, RAW, None)]) == newest([done(5)], {}, {}, 100)
    truncated = done(9_001)
    assert ({}, [LeftOut(Why.OTHER_LOG, RAW, None)]) == newest([truncated], {}, {RAW: 0}, 100)


def test_a_sample() -> None:
    """Windows cover the percentage of the range, each with its neighbours; overlapping reads are merged."""
    long, short = Range([Span(10_000, 1_010_000)], [Span(9_000, 1_012_000)], "id"), Range([Span(3, 3)], [Span(0, 3)])
    whole = {RAW: long, OTHER: short}

    part = sampled(whole, 20)

    for percent, offsets in ((20, 200_000), (20.1, 201_000), (1.5, 15_000), (0.1, 1_000), (100, 1_000_000)):
        judged = sum(each.length for each in sampled(whole, percent)[RAW].judged)
        assert offsets == pytest.approx(judged, abs=100)  # each window is whole offsets
    assert part[RAW].read <= 200_000 + 20 * 4_000
    assert "id" == part[RAW].topic_id
    assert all(begin < end for begin, end in part[RAW].judged)
    assert all(first[1] < second[0] for first, second in zip(part[RAW].known, part[RAW].known[1:], strict=False))
    assert part[RAW].judged[0].begin in part[RAW]
    assert part[RAW].judged[-1].end not in part[RAW]
    assert [] == part[OTHER].judged == part[OTHER].known
    assert (0, 0) == (part[OTHER].read, part[OTHER].end)
    assert (1_003_000, 1_012_000) == (whole[RAW].read, whole[RAW].end)
    assert whole[RAW].judged[0].begin in sampled(whole, 100)[RAW]
    assert whole[RAW].known == sampled(whole, 100)[RAW].known
    assert [Span(0, 9_000), Span(1_012_000, 1_012_001)] == list(whole[RAW].rest(0, 1_012_001))
    assert [] == list(whole[RAW].rest(9_000, 1_012_000))
    assert [Span(1_012_000, 1_012_001)] == list(whole[RAW].rest(10_000, 1_012_001))


class TestRanges:
    def at(self, offset: int | None, since: int = 0, log_start: int = 0) -> PartitionLag:
        metadata = str(OffsetMetadata("id", since, Counts(1)))
        committed = None if offset is None else CommittedOffset(offset, metadata)
        return PartitionLag(RAW, committed, Watermarks(log_start, 9_000, 9_000))

    def judged(
        self,
        at: PartitionLag,
        begin: int | None,
        end: int | None = None,
        *,
        until: int | None = None,
        first: int | None = 0,
        later: int | None = None,
        kept_from: int | None = None,
    ) -> tuple[tuple[Span, Span] | None, list[tuple[Why, int | None]]]:
        ends = {} if until is None else {RAW: end}
        asked = Asked(500, until, {RAW: begin}, ends, {RAW: first}, {"raw": kept_from})
        found, left_out = ranges([at], {} if later is None else {RAW: CommittedOffset(later)}, asked)
        spans = [(each.judged[0], each.known[0]) for each in found.values()]
        return spans[0] if spans else None, [(each.why, each.offsets) for each in left_out]

    def test_what_is_done_is_judged(self) -> None:
        """Between the times, up to the service's position; a little more is read on both sides."""
        done, known = Span(3_000, 5_000), Span(1_000, 7_000)

        assert ((done, known), []) == self.judged(self.at(7_500), 3_000, 5_000, until=1, later=8_000)
        assert ((Span(3_000, 7_500), Span(1_000, 8_000)), []) == self.judged(self.at(7_500), 3_000, later=8_000)

    def test_what_is_not_judged_is_said(self) -> None:
        """No offset, no leader, before the group began, not done yet, deleted."""
        part = (Span(3_000, 7_500), Span(1_000, 7_500))

        assert (None, [(Why.NO_OFFSET, 6_000)]) == self.judged(self.at(None), 3_000)
        assert (None, [(Why.NO_OFFSET, 0)]) == self.judged(self.at(None), None)
        assert (None, [(Why.NO_LEADER, None)]) == self.judged(PartitionLag(RAW, CommittedOffset(7), None), 3_000)
        assert (part, [(Why.NOT_DONE, 500)]) == self.judged(self.at(7_500), 3_000, 8_000, until=1)
        assert (part, [(Why.BEFORE_GROUP, 1_000)]) == self.judged(self.at(7_500, since=3_000), 2_000)
        assert ((Span(3_000, 7_500), Span(3_000, 7_500)), [(Why.EXPIRED, 3_000)]) == self.judged(
            self.at(7_500, log_start=3_000), 3_000, first=3_000
        )

    def test_an_offset_that_no_run_has_committed(self) -> None:
        """An operator has set it, or another consumer has worked for the group: what is before it is not ours."""
        at = PartitionLag(RAW, CommittedOffset(7_500), Watermarks(0, 9_000, 9_000))

        assert [(Why.BEFORE_GROUP, 4_500), (Why.NOT_DONE, 1_500)] == self.judged(at, 3_000)[1]
        assert ({}, []) == newest([at], {}, {RAW: 0}, 100)

    def test_a_range_up_to_now_of_which_nothing_is_done(self) -> None:
        """The service may have died before it. Of one that works, only the end is not judged, which is not said."""
        marks = Watermarks(0, 9_000, 9_100)
        stands = replace(self.at(1_000), watermarks=marks)

        assert [(Why.NOT_DONE, 4_100)] == self.judged(stands, 5_000)[1]
        assert [(Why.NOT_DONE, 100)] == self.judged(replace(self.at(9_000), watermarks=marks), None)[1]
        assert [] == self.judged(stands, 5_000, later=5_001)[1]
        assert [] == self.judged(replace(self.at(5_001), watermarks=marks), 5_000)[1]
        assert [] == self.judged(self.at(9_000), None)[1]

    def test_a_range_is_of_its_topic(self) -> None:
        """What a deleted topic of the same name has left behind is told apart by the id."""
        at = replace(self.at(7_500), topic_id="id")

        found, _ = ranges([at], {}, Asked(0, None, {RAW: 0}, {}, {RAW: 0}))

        assert "id" == found[RAW].topic_id

    def test_an_offset_of_another_log_shows_nothing_done(self) -> None:
        """The log was truncated below it, and may have grown since; or its topic was deleted and created again."""
        cut = str(OffsetMetadata("id", 0, Counts(1), cut=5_000))
        recreated = replace(self.at(7_500, since=0), topic_id="another")

        for at in (self.at(9_001), replace(self.at(7_500), committed=CommittedOffset(7_500, cut)), recreated):
            assert (None, [(Why.OTHER_LOG, None)]) == self.judged(at, 3_000)
        assert [] == self.judged(self.at(9_000, since=0), 3_000)[1]

    def test_what_an_open_transaction_of_the_source_hides(self) -> None:
        """Its records may lie before `--to`, and the service has not done them. After a later readable one they cannot."""
        open_at_7500 = replace(self.at(7_500), watermarks=Watermarks(0, 7_500, 7_600))

        assert [(Why.NOT_DONE, 100)] == self.judged(open_at_7500, 3_000, None, until=1)[1]
        assert [] == self.judged(open_at_7500, 3_000, 7_000, until=1)[1]
        assert [] == self.judged(open_at_7500, 3_000)[1]

    def test_a_partition_without_an_offset_in_which_nothing_has_come(self) -> None:
        """It is not left out where the group has an offset in another."""
        other = replace(self.at(9_000), partition=OTHER)

        _, left_out = ranges([self.at(None), other], {}, Asked(0, None, {RAW: None, OTHER: 0}, {}, {}))

        assert [] == left_out

    def test_a_range_that_holds_nothing(self) -> None:
        """Nothing is left out, and lines of that time must have a record. Deleted records were older."""
        nothing = (Span(9_000, 9_000), Span(9_000, 9_000))

        for kept_from in (400, 500):
            assert (nothing, []) == self.judged(self.at(9_000, log_start=9_000), None, first=None, kept_from=kept_from)
        assert (nothing, [(Why.EXPIRED, 9_000)]) == self.judged(
            self.at(9_000, log_start=9_000), None, first=None, kept_from=600
        )

    def test_a_partition_that_does_not_answer(self) -> None:
        """The partition is left out by name."""
        found, left_out = ranges([self.at(5)], {}, Asked(0, None, {}, {}, {}))

        assert ({}, [LeftOut(Why.NO_LEADER, RAW, None)]) == (found, left_out)
        assert ("no leader", "raw", 0, None) == tuple(left_out[0].as_json().values())


def test_limits_of_another_time() -> None:
    """What the topics took then is right, also if they would refuse or cut it now, and the other way round."""
    parser = Plugin("delimited", {"fields": ["a", "b"], "output": "{b}|{a}", "engine": "plain"})
    wide = make_task_config(
        parser=parser,
        sink=replace(SINK, max_bytes=1_000_000),
        dead_letters=replace(DEAD_LETTERS, max_bytes=1_000_000),
    )
    narrow = replace(
        wide, sink=replace(SINK, max_bytes=520, compacted=True), dead_letters=replace(DEAD_LETTERS, max_bytes=1_000)
    )
    values = [b"1,x", b"2," + b"x" * 600, b"rubbish " * 100]
    records = [Record(RAW, at, 1_000 + at, b"k" if at else None, value, []) for at, value in enumerate(values)]
    end = End(len(records), stable=True)

    for then, since in product((wide, narrow), (wide, narrow)):
        written = [(each.to, each.written) for each in fates(then).of(records)]
        output = Topic(
            Record(to, at, one.timestamp, one.key, one.value, one.headers) for at, (to, one) in enumerate(written)
        )
        routing = Routing(since.sink, since.dead_letters)
        at, ends = PartitionLag(RAW, None, None), {CLEAN: end, DEAD: end}
        scope = Scope(unlimited(since), routing, [at], [], ends, {RAW: WHOLE}, [], (0, math.inf))
        reader = Topic(records)
        readers = Readers(reader, output, reader, output)  # type: ignore[arg-type]  # all that an audit needs of topics
        (verdict,) = scope.audit(fates(scope.tasks), readers)
        assert ([], {}, 3) == (verdict.findings, +verdict.not_judged, verdict.judged)


def test_a_survey_cleanses_without_limits() -> None:
    """Those of today say nothing of the lines that were taken then; where the lines go is as the topics are."""
    patient = Patient()
    patient.kafka.compacted = {"clean", "dead"}

    scope = Scope.newest(patient.loaded.config, patient.kafka.clients, patient.first_lines, 1_000)

    assert (False, 2**31 - 1) == (scope.tasks.sink.compacted, scope.tasks.sink.max_bytes)
    assert scope.routing.sink.compacted


def fates(config: TaskConfig) -> Fates:
    return Fates(config, partial(parse, make_parser(config)))


@pytest.mark.parametrize(
    ("append_time", "lineage", "known"), [(False, False, True), (True, True, True), (True, False, False)]
)
def test_lines_that_cannot_be_known(append_time: bool, lineage: bool, known: bool) -> None:
    """The lines have neither their record's timestamp nor a header."""
    routing = Routing(Destination("clean", 1, 1_000, append_time=append_time), DEAD_LETTERS, lineage=lineage)

    if known:
        refuse_lost_times(routing)
        return
    with pytest.raises(
        NotUsable, match=r"'clean' has message\.timestamp\.type LogAppendTime.*set lineage\.headers to true"
    ):
        refuse_lost_times(routing)


def test_a_transaction_that_ends_soon() -> None:
    """The audit waits for open transactions, but not forever."""
    slept: list[float] = []
    soon, never = Topic([line(A)]), Topic([line(A)])
    soon.open_until, never.open_until = 4, 1_000

    assert {CLEAN: End(1, stable=True)} == stable_ends(soon, [CLEAN], slept.append)  # type: ignore[arg-type]  # what it asks
    assert 2 == len(slept)
    assert {CLEAN: End(0, stable=False)} == stable_ends(never, [CLEAN], slept.append)  # type: ignore[arg-type]  # as above
