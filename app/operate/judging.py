"""
Judges a range of the source against the sink and the dead letters, for `winnow audit`.

Each record is correct, or has a finding, or counts as not judged with the reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from app.model import Partition
from app.operate.expected import Mark, Origin
from app.operate.findings import Defect, Finding, again, missing, other_letter, other_line, shown, str_of
from app.operate.matching import ELSEWHERE, Matching
from app.operate.ranges import Why
from app.operate.reading import Span
from app.records import Fate, Record


class Log(NamedTuple):
    """A partition of the sink or of the dead letters; see `End`."""

    begin: int
    """Its first offset after it was read."""
    stable: bool
    older: bool
    """Whether it holds a record older than the range."""


class Verdict(NamedTuple):
    """The result for some source partitions, with the numbers of records."""

    judged: int
    filtered: int
    """How many of these a filter dropped on purpose."""
    known_by_text: int
    """How many lines were matched by text alone, for lack of a header or their record's timestamp."""
    findings: list[Finding]
    not_judged: Counter[Why]
    """How many records and lines could not be judged."""


class Judge:
    """
    Judges what was matched.

    Pass the `wanted` records again to `examine`, the lines to `look_at` if `lines_wanted`, and records outside the
    range to `explain` if `times` is not empty. Then call `verdict`.

    `logs` and `starts` have the partitions with a leader. `starts` has the first offset of each source partition, asked
    for after that was read.
    """

    def __init__(self, matching: Matching, logs: Mapping[Partition, Log], starts: Mapping[Partition, int]) -> None:
        self._matching = matching
        self._routing = matching.routing
        self._logs = logs
        self._starts = starts
        self._not_judged = matching.not_judged
        self._suspects: dict[int, Fate] = {}
        """The expected outcome of each record that may lack it, by row."""
        self._instead: defaultdict[tuple[int, bytes | None], list[Record]] = defaultdict(list)
        """Lines that may be there instead, by timestamp and key."""
        self.read_whole: Collection[Partition] = ()
        """The source partitions whose remaining records were all read: only deleted ones can still explain a line."""
        for source, found in matching.ranges.items():
            self._not_judged[Why.EXPIRED] += sum(
                matching.expected.row(Origin(source, offset)) is None
                for begin, end in found.judged
                for offset in range(begin, min(end, starts.get(source, 0)))
            )
        for row in self._without_outcome():
            if (why := self._why_gone(row)) is None:
                matching.expected.marks[row] |= Mark.MISSING
            else:
                self._leave_out(why)

    def _leave_out(self, why: Why) -> None:
        self._matching.judged -= 1
        self._not_judged[why] += 1

    def _without_outcome(self) -> Iterator[int]:
        for row, marks in enumerate(self._matching.expected.marks):
            if marks & Mark.JUDGED and not marks & Mark.OUTCOME:
                yield row

    def _why_gone(self, row: int) -> Why | None:
        """Return why it is unknown whether a record is lost; None if it is known."""
        source, offset = self._matching.expected.origin(row)
        marks, letters = self._matching.expected.marks[row], self._routing.letters(source)
        own = letters if marks & Mark.REJECT else self._routing.lines(source)
        for place in dict.fromkeys([*own, *letters]):  # a topic's limits may have turned a line into a dead letter
            log = self._logs.get(place)
            if log is None:
                return Why.NO_LEADER
            if not log.stable:
                return Why.OPEN
            if marks & (Mark.LETTER_KEPT if place in letters else Mark.LINE_KEPT):
                continue
            if log.begin > 0 and self._took(source, offset, place) and (place in own or not log.older):
                return Why.EXPIRED
        return None

    def _took(self, source: Partition, offset: int, place: Partition) -> bool:
        """Whether retention may have deleted a record's output: it deletes the oldest first, so none older is left."""
        first = self._matching.first.get((source, place))
        return first is None or first[1] > offset

    @property
    def wanted(self) -> dict[Partition, Span]:
        spans: dict[Partition, Span] = {}
        for row in filter(self._is_wanted, range(len(self._matching.expected.marks))):
            source, offset = self._matching.expected.origin(row)
            spans[source] = Span(spans.get(source, Span(offset, 0)).begin, offset + 1)
        return spans

    def wants(self, record: Record) -> bool:
        row = self._matching.expected.row(Origin(record.partition, record.offset))
        return row is not None and self._is_wanted(row)

    def _is_wanted(self, row: int) -> bool:
        marks = self._matching.expected.marks[row]
        return bool(marks & Mark.MISSING) or row in self._matching.instead or row in self._matching.letters

    def examine(self, fate: Fate) -> None:
        row = self._matching.expected.row(Origin(fate.record.partition, fate.record.offset))
        assert row is not None  # it is wanted
        marks = self._matching.expected.marks
        if marks[row] & Mark.MISSING and any(each != ELSEWHERE for each in self._later_ones(fate)):
            marks[row] &= ~Mark.MISSING
            self._leave_out(Why.COMPACTED)
            return
        self._suspects[row] = fate
        self._matching.refuse_too_much(len(self._suspects))
        if marks[row] & Mark.MISSING:
            self._instead[fate.record.timestamp, fate.written.key] = []

    def _later_ones(self, fate: Fate) -> list[Origin]:
        """Return later records with the same key, for which compaction may have deleted the missing one."""
        source, offset = fate.record.partition, fate.record.offset
        topic = self._routing.dead_letters if fate.reason else self._routing.sink
        places = self._routing.letters(source) if fate.reason else self._routing.lines(source)
        if not topic.compacted or fate.written.key is None:
            return []
        found = [self._matching.latest.get((place, hash(fate.written.key))) for place in places]
        latest = [each[1] for each in found if each is not None]
        return [each for each in latest if each.partition != source or each.offset > offset]

    @property
    def lines_wanted(self) -> bool:
        return bool(self._instead)

    def look_at(self, record: Record) -> None:
        """Note a line that may have replaced a missing one."""
        lines = self._instead.get((record.timestamp, record.key))
        if lines is not None and self._matching.is_strange(record):
            lines.append(record)

    @property
    def times(self) -> set[int]:
        """The timestamps, in milliseconds, of lines that only records outside the range can explain."""
        return {each.timestamp for lines in self._matching.surplus.values() for each in lines}

    def explain(self, fate: Fate) -> bool:
        """Match a record outside the range with an unexplained line; return whether any such lines are left."""
        surplus, content = self._matching.surplus, self._matching.content_of(fate)
        if not (fate.reason or fate.filtered) and content in surplus:
            surplus[content].pop()
            if not surplus[content]:
                del surplus[content]
        return bool(surplus)

    def verdict(self) -> Verdict:
        of_suspects = list(self._of_suspects())
        changed = {each.found_at for each in of_suspects}
        strangers = [each for each in self._of_surplus() if each.found_at not in changed]
        if too_many := self._matching.too_many:
            self._matching.refuse_too_much(len(strangers) + 1)  # nothing explains those that are known
            self._not_judged[Why.TOO_MANY] += too_many
        found = [*self._matching.findings, *of_suspects, *strangers, *self._of_orphans()]
        found.sort(key=lambda each: (each.origin is None, each.origin or (), each.kind, each.found_at))
        matching = self._matching
        return Verdict(matching.judged, matching.filtered, matching.known_by_text, found, self._not_judged)

    def _of_suspects(self) -> Iterator[Finding]:
        for row, marks in enumerate(self._matching.expected.marks):
            if not marks & Mark.JUDGED or not self._is_wanted(row):
                continue
            if (fate := self._suspects.get(row)) is None:  # the source deleted it after it was read
                self._leave_out(Why.EXPIRED)
            elif marks & Mark.MISSING:
                lines = self._instead[fate.record.timestamp, fate.written.key]
                if not lines and self._later_ones(fate):
                    self._leave_out(Why.COMPACTED)
                else:
                    yield other_line(fate, lines.pop(0)) if lines else missing(fate)
            elif row in self._matching.letters:
                yield from other_letter(fate, self._matching.letters[row])
            elif not marks & Mark.LETTER:  # otherwise it has both, which is a finding already
                yield other_line(fate, self._matching.instead[row])

    def _of_surplus(self) -> Iterator[Finding]:
        expected = self._matching.expected
        for content, lines in self._matching.surplus.items():
            alike = list(expected.rows(content))
            judged = next((row for row in alike if expected.marks[row] & Mark.JUDGED), None)
            for line in lines if judged is not None or not alike else ():
                if why := self._why_strange(line):
                    self._not_judged[why] += 1
                elif judged is not None:
                    yield again(expected.origin(judged), line)
                else:
                    detail = f"no source record gives {shown(line.value)}"
                    yield Finding(Defect.UNEXPLAINED, None, str_of(line), detail)

    def _why_strange(self, line: Record) -> Why | None:
        """Return why it is unknown whether a record explains a line; None if it is known."""
        if self._routing.compacted_source:
            return Why.COMPACTED
        for source in self._matching.sources:
            if line.partition not in self._routing.lines(source):
                continue
            if source not in self._starts:
                return Why.NO_LEADER
            # Lines are in the order of their records, so those of deleted records come before all others.
            first = self._matching.first.get((source, line.partition))
            if source in self.read_whole and self._starts[source] > 0 and (first is None or line.offset < first[0]):
                return Why.EXPIRED
        return None

    def _of_orphans(self) -> Iterator[Finding]:
        for (source, offset), record in self._matching.orphans:
            if self._routing.compacted_source:
                self._not_judged[Why.COMPACTED] += 1
            elif offset < self._starts.get(source, 0):
                self._not_judged[Why.EXPIRED] += 1
            else:
                detail = f"it names {source.at(offset)}, but the source has no record there"
                yield Finding(Defect.UNEXPLAINED, None, str_of(record), detail)
