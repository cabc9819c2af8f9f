"""A table of every anomaly, in every routing, whole or sampled: each is found, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import pytest

from app.headers import as_text
from app.operate import judging, matching
from app.operate.audit import Auditor
from app.operate.findings import Defect
from app.operate.judging import Judge, Verdict
from app.operate.matching import Matching
from app.operate.ranges import Range, Routing, Why
from app.operate.reading import Span
from app.records import Record
from tests.fakes.audits import CLEAN, DEAD_LETTERS, OTHER, RAW, SINK, AuditedTopics, letter, line, named

RECORDS, GAP, LINE, LETTER, TWIN = 20, 9, 13, 15, 10
"""How many offsets each partition has, which one bears no record, and the records that something happens to."""
REPLAYED = [("winnow.replays", b"1")]
KNOWN = ["by time", "by header", "by header, LogAppendTime"]
LOSSES = ["nothing taken", "lines taken", "dead letters taken", "compacted"]


def source() -> list[Record]:
    """Return rejects and others, including identical records, a late one, and a reject with a header like ours."""
    found = []
    for offset, partition in product(range(RECORDS), (RAW, OTHER)):
        alike = offset == TWIN
        number = 0 if alike else partition.number
        key, value = (b"%s %d %d" % (what, number, offset) for what in (b"key", b"bad" if offset % 4 == 3 else b"good"))
        key = b"key 0 6" if (partition, offset) == (RAW, 12) else key
        timestamp = 1_055 if (partition, offset) == (RAW, 19) else 1_000 + 10 * offset + number
        headers = REPLAYED if offset == LETTER else []
        if (partition, offset) != (RAW, GAP) and (partition, offset) != (RAW, 19):
            found.append(Record(partition, offset, timestamp, key, value, headers))
    return [*found, Record(RAW, 19, 1_055, b"late", b"good and late", [])]


def topics(known: str, loss: str, *, whole: bool) -> AuditedTopics:
    """Return the correct output of a service for the source, and what was deleted."""
    records = source()
    lineage = known != "by time"
    spans = [Span(4, 16)] if whole else [Span(5, 8), Span(12, 16)]
    reach = 2 if whole else 1
    found = Range(spans, [Span(begin - reach, end + reach) for begin, end in spans])
    sink = replace(SINK, append_time="LogAppendTime" in known, compacted=loss == "compacted")
    good = [each for each in records if (each.value or b"").startswith(b"good")]
    lines = [line(each, headers=named(each) if lineage else []) for each in good]
    at = {(each.partition, each.offset): place for place, each in enumerate(good)}
    return AuditedTopics(
        records,
        lines,
        [letter(each) for each in records if each not in good],
        {RAW: found, OTHER: found},
        (1_040, 1_160) if whole and not sink.append_time else (1_040, math.inf) if whole else None,
        Routing(sink, DEAD_LETTERS, lineage=lineage),
        taken=(at[RAW, 6] if loss == "lines taken" else 0, 4 if loss == "dead letters taken" else 0),
        compacted={at[RAW, 6]} if loss == "compacted" else (),
    )


def place(topics: AuditedTopics, offset: int) -> int:
    """Return the place of a line of the first partition's record."""
    value = b"line of good 0 %d" % offset
    return next(at for at, each in enumerate(topics.lines) if each.value == value)


def lose(topics: AuditedTopics) -> None:
    del topics.lines[place(topics, LINE)]


def lose_letter(topics: AuditedTopics) -> None:
    topics.letters = [each for each in topics.letters if each.value != b"bad 0 %d" % LETTER]


def lose_twin(topics: AuditedTopics) -> None:
    del topics.lines[place(topics, TWIN)]


def double(topics: AuditedTopics) -> None:
    topics.lines.insert(place(topics, LINE), topics.lines[place(topics, LINE)])


def double_much_later(topics: AuditedTopics) -> None:
    later = Record(OTHER, 99, 9_999_999, b"k", b"good on another day", [])
    topics.source.append(later)
    topics.lines += [line(later, headers=named(later)), topics.lines[place(topics, LINE)]]


def double_letter(topics: AuditedTopics) -> None:
    topics.letters.append(next(each for each in topics.letters if each.value == b"bad 0 %d" % LETTER))


def change(topics: AuditedTopics) -> None:
    at = place(topics, LINE)
    topics.lines[at] = topics.lines[at]._replace(value=b"other")


def change_letter(topics: AuditedTopics) -> None:
    record = next(each for each in topics.source if each.value == b"bad 0 %d" % LETTER)
    topics.letters = [letter(record, reason="other") if each.value == record.value else each for each in topics.letters]


def reject_a_line(topics: AuditedTopics) -> None:
    lose(topics)
    topics.letters.append(letter(record_of(topics, LINE)))


def write_a_reject(topics: AuditedTopics) -> None:
    lose_letter(topics)
    record = record_of(topics, LETTER)
    headers = named(record) if topics.routing.lineage else []
    topics.lines.insert(place(topics, 14) + 2, line(record, headers=headers)._replace(value=b"other"))


def swap(topics: AuditedTopics) -> None:
    first, second = place(topics, LINE), place(topics, 14)
    topics.lines[first], topics.lines[second] = topics.lines[second], topics.lines[first]


def write_both(topics: AuditedTopics) -> None:
    topics.letters.append(letter(record_of(topics, LINE), reason="refused"))


def plant(topics: AuditedTopics) -> None:
    stranger = Record(RAW, GAP if topics.routing.lineage else LINE, 1_137, b"k", b"good for nothing", [])
    topics.lines.append(line(stranger, headers=named(stranger) if topics.routing.lineage else []))


def plant_a_name(topics: AuditedTopics) -> None:
    stranger = Record(RAW, 1_000_000, 1_137, b"k", b"good for nothing", [])
    topics.lines.append(line(stranger, headers=named(stranger)))


def plant_letter(topics: AuditedTopics) -> None:
    topics.letters.append(letter(Record(RAW, GAP, 1_090, b"k", b"bad", [])))


def refuse(topics: AuditedTopics) -> None:
    lose(topics)
    topics.letters.append(letter(record_of(topics, LINE), reason="refused"))


def refuse_twin(topics: AuditedTopics) -> None:
    lose_twin(topics)
    topics.letters.append(letter(record_of(topics, TWIN), reason="refused"))


def replay(topics: AuditedTopics) -> None:
    """Let a dead-letter replay write a line, and put back another dead letter."""
    refuse(topics)
    record = record_of(topics, LINE)
    topics.lines.append(line(record, headers=[*named(record), *REPLAYED]))
    topics.letters.append(letter(record_of(topics, LETTER), more=REPLAYED))


def replay_twice(topics: AuditedTopics) -> None:
    replay(topics)
    topics.lines.append(topics.lines[-1])


def let_dead_letters_be_early(topics: AuditedTopics) -> None:
    topics.letters.insert(topics.taken[1], letter(record_of(topics, LETTER))._replace(timestamp=5))
    topics.letters = [each for each in topics.letters if each.value != b"bad 0 %d" % LETTER or each.timestamp == 5]


def replay_twin(topics: AuditedTopics) -> None:
    """Let a replay write the line of one of two identical records whose dead letter is gone."""
    lose_twin(topics)
    record = record_of(topics, TWIN)
    topics.lines.append(line(record, headers=[*named(record), *REPLAYED]))


def write_without_time(topics: AuditedTopics) -> None:
    """Give a record no timestamp, so that its line has the time of writing."""
    at = topics.source.index(record := record_of(topics, LINE))
    topics.source[at] = record._replace(timestamp=0)
    topics.lines[place(topics, LINE)] = topics.lines[place(topics, LINE)]._replace(timestamp=1_999)


def hold_back(topics: AuditedTopics) -> None:
    lose(topics)
    topics.stable = False


def hide(topics: AuditedTopics) -> None:
    topics.lines.clear()
    topics.lost = [CLEAN]


def delete_records(topics: AuditedTopics) -> None:
    """Let retention delete source records whose lines are in the sink."""
    topics.source = [each for each in topics.source if each.offset >= 6]
    topics.starts = {RAW: 6, OTHER: 6}


def compact_source(topics: AuditedTopics) -> None:
    topics.source.remove(record_of(topics, LINE))
    topics.routing = replace(topics.routing, compacted_source=True)


def record_of(topics: AuditedTopics, offset: int) -> Record:
    return next(each for each in topics.source if (each.partition, each.offset) == (RAW, offset))


class Anomaly(NamedTuple):
    """What happens, the findings, what is not judged, and whether a sample finds it."""

    happen: Callable[[AuditedTopics], object]
    kinds: Sequence[str] = ()
    why: Why | None = None
    in_samples: bool = True


ANOMALIES = {
    "all is well": Anomaly(lambda topics: topics),
    "a line is lost": Anomaly(lose, ["lost"]),
    "a dead letter is lost": Anomaly(lose_letter, ["lost"]),
    "a line of two that are alike is lost": Anomaly(lose_twin, ["lost"], in_samples=False),
    "a line is doubled": Anomaly(double, ["doubled"]),
    "a line is doubled much later": Anomaly(double_much_later, ["doubled"]),
    "a dead letter is doubled": Anomaly(double_letter, ["doubled"]),
    "a line is changed": Anomaly(change, ["changed"]),
    "a dead letter is changed": Anomaly(change_letter, ["changed"]),
    "a line is rejected": Anomaly(reject_a_line, ["changed"]),
    "a reject is written": Anomaly(write_a_reject, ["changed"]),
    "two lines are swapped": Anomaly(swap, ["out of order"]),
    "a line and a dead letter": Anomaly(write_both, ["both"]),
    "a line without a record": Anomaly(plant, ["unexplained"], in_samples=False),
    "a line with a name of nobody": Anomaly(plant_a_name, ["unexplained"], in_samples=False),
    "a dead letter without a record": Anomaly(plant_letter, ["unexplained"], in_samples=False),
    "the sink has refused a line": Anomaly(refuse),
    "the sink has refused one of two that are alike": Anomaly(refuse_twin),
    "a replay has written a line": Anomaly(replay),
    "a replay has written a line twice": Anomaly(replay_twice, ["doubled"]),
    "a replay has written one of two that are alike": Anomaly(replay_twin),
    "a dead letter has an early time": Anomaly(let_dead_letters_be_early),
    "a record has no time": Anomaly(write_without_time),
    "a transaction is open": Anomaly(hold_back, why=Why.OPEN),
    "a partition has no leader": Anomaly(hide, why=Why.NO_LEADER),
    "records of the source are taken": Anomaly(delete_records, why=Why.EXPIRED),
    "the source is compacted": Anomaly(compact_source, why=Why.COMPACTED),
}
Row = tuple[str, str, bool]
ROWS: list[Row] = list(product(KNOWN, LOSSES, (True, False)))


def found(anomaly: str, row: Row) -> tuple[list[str], bool, set[Why]]:
    """Return the kinds found, whether everything else was judged, and why not."""
    known, loss, whole = row
    happened = topics(known, loss, whole=whole)
    ANOMALIES[anomaly].happen(happened)
    verdict = happened.audit()
    return sorted({str(each.kind) for each in verdict.findings}), len(verdict.findings) <= 1, set(+verdict.not_judged)


def expected(anomaly: str, row: Row) -> tuple[list[str], bool, set[Why]]:
    """Return the expected result."""
    _, kinds, why, in_samples = ANOMALIES[anomaly]
    known, loss, whole = row
    if not whole and not in_samples:
        kinds = []
    # Two partitions have the lost record. A later record of the other has its key, and no earlier dead letter is left.
    if anomaly == "a line of two that are alike is lost" and loss in ("compacted", "dead letters taken"):
        kinds = []
    whys = {TAKEN[loss]} if loss in TAKEN else set()
    if why is Why.OPEN:
        whys = {why}
    elif why is Why.NO_LEADER:
        whys = {why, *(whys if loss == "dead letters taken" else ())}
    elif why is Why.EXPIRED or (why is not None and (whole or known != "by time")):
        whys |= {why}
    return list(kinds), True, whys


TAKEN = {"lines taken": Why.EXPIRED, "dead letters taken": Why.EXPIRED, "compacted": Why.COMPACTED}


@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_each_anomaly(anomaly: str) -> None:
    """Each anomaly gives its finding and no other; what cannot be judged is reported."""
    assert {row: expected(anomaly, row) for row in ROWS} == {row: found(anomaly, row) for row in ROWS}


def without(kind: Defect) -> Callable[[Judge], Verdict]:
    verdict_of = Judge.verdict

    def verdict(judge: Judge) -> Verdict:
        whole = verdict_of(judge)
        return whole._replace(findings=[each for each in whole.findings if each.kind is not kind])

    return verdict


def nothing(*_: object) -> Iterator[Any]:
    return iter(())


MUTATIONS: dict[str, tuple[object, str, object, str]] = {
    "no lost": (Judge, "verdict", without(Defect.LOST), "a line is lost"),
    "no doubled": (Judge, "verdict", without(Defect.DOUBLED), "a line is doubled much later"),
    "no changed": (Judge, "verdict", without(Defect.CHANGED), "a line is changed"),
    "no out of order": (Judge, "verdict", without(Defect.OUT_OF_ORDER), "two lines are swapped"),
    "no both": (Judge, "verdict", without(Defect.BOTH), "a line and a dead letter"),
    "no unexplained": (Judge, "verdict", without(Defect.UNEXPLAINED), "a line without a record"),
    "what is missing is well": (Judge, "_without_outcome", nothing, "a dead letter is lost"),
    "retention takes nothing": (Judge, "_took", lambda *_: False, "all is well"),
    "all that is missing is lost": (Judge, "_why_gone", lambda *_: None, "a partition has no leader"),
    "compaction takes nothing": (Judge, "_later_ones", lambda *_: [], "all is well"),
    "nothing explains a surplus": (Judge, "_why_strange", lambda *_: None, "records of the source are taken"),
    "a surplus is well": (Judge, "_of_surplus", nothing, "a line is doubled"),
    "any name is good": (Judge, "_of_orphans", nothing, "a dead letter without a record"),
    "any dead letter will do": (judging, "other_letter", nothing, "a dead letter is changed"),
    "nothing stands instead": (Matching, "is_strange", lambda *_: False, "a line is changed"),
    "any order will do": (Matching, "_judge_order", lambda *_: None, "two lines are swapped"),
    "both are well": (Matching, "_note_both", lambda *_: None, "a line and a dead letter"),
    "no line needs a record": (Matching, "_is_asked_for", lambda *_: False, "a line without a record"),
    "a name beyond the range is good": (Matching, "_is_beyond", lambda *_: False, "a line with a name of nobody"),
    "a name takes no line away": (
        Matching,
        "_reassign",
        lambda *_: False,
        "a replay has written one of two that are alike",
    ),
    "the first that is alike": (
        Matching,
        "_choose",
        lambda self, content, _: next(filter(self._is_free, self.expected.rows(content)), None),
        "the sink has refused one of two that are alike",
    ),
    "dead letters are late": (Matching, "lacks_letters", False, "a dead letter has an early time"),
    "all headers are ours": (matching, "ours", as_text, "a dead letter is doubled"),
    "nothing outside explains": (Auditor, "_explain", lambda *_: None, "all is well"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_judgement_that_is_missing_is_found_out(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one of the judgements, a row of the table fails."""
    where, name, other, anomaly = MUTATIONS[mutation]
    monkeypatch.setattr(where, name, other)

    assert any(expected(anomaly, row) != found(anomaly, row) for row in ROWS)
