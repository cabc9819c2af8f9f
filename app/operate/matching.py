"""Matches the records of a range with their lines and dead letters, and keeps what has no match."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from app.errors import WinnowError
from app.headers import REPLAYS, SOURCE, TOPIC_ID, Headers, origin_of, ours, whole_number
from app.model import Partition, topic_id_of, topics_differ
from app.operate.dead_letters import Letter
from app.operate.expected import Expected, Mark, Origin
from app.operate.findings import BY_THE_TOPICS, Defect, Finding, again, shown, str_of
from app.operate.ranges import Range, Routing, Why
from app.records import Fate, OutgoingRecord, Record

MOST_STRANGE = 100_000
"""How many mismatched lines and records are accepted: their texts are held in memory."""
ELSEWHERE = Origin(Partition("", -1), 0)
"""The origin of a line whose record is unknown."""


class Matching:
    """
    Receives the expected outcomes of the records, then all dead letters, then all lines.

    A line belongs to the record that its header names, or else to a record with its key, timestamp and text. Among
    several it prefers one without a dead letter, and one that keeps the order. If those are of several source
    partitions, they are indistinguishable, and their order is not judged.

    Args:
        times: every line with a timestamp between these must have a record; None in a sample, where most have none.
        sources: all source partitions that share sink partitions, even if nothing of them is judged.
    """

    def __init__(
        self,
        ranges: Mapping[Partition, Range],
        routing: Routing,
        times: tuple[int, float] | None,
        sources: Collection[Partition],
    ) -> None:
        self.sources = sources
        self.ranges = ranges
        self.routing = routing
        self._times = times
        self.expected = Expected()
        self._by_text = False
        """Whether some lines lack their records' timestamps."""
        self._taken: dict[int, int] = {}
        """By hash: how many records, counted from the first with that hash, have their line."""
        self._last: dict[tuple[Partition, Partition], tuple[int, int]] = {}
        """By source and sink partition: the largest source offset found, and the sink offset judged last."""
        self.first: dict[tuple[Partition, Partition], tuple[int, int]] = {}
        """By source and sink or dead-letter partition: the offset of the first output, and its record's offset."""
        self.latest: dict[tuple[Partition, int], tuple[int, Origin]] = {}
        """By compacted partition and key hash: the offset of the latest output, and its source record."""
        self.surplus: defaultdict[int, list[Record]] = defaultdict(list)
        """By hash: lines without a known record, or more lines than records; MOST_STRANGE of both at most."""
        self._strange: Counter[bool] = Counter()
        """How many such lines there are, by whether they are like a known record."""
        self.orphans: list[tuple[Origin, Record]] = []
        """Lines and dead letters that name a record of the range that was not read."""
        self.instead: dict[int, Record] = {}
        """By row: lines that name a record but differ from what is expected of it."""
        self.letters: dict[int, Letter] = {}
        """By row: dead letters that differ from what is expected."""
        self.findings: list[Finding] = []
        self.not_judged: Counter[Why] = Counter()
        self.judged = self.filtered = 0
        self.known_by_text = 0
        """How many lines were matched by text alone."""
        self.oldest: int | None = None if times is None else times[0]
        """The smallest timestamp in milliseconds of a relevant line."""

    def expect(self, fates: Iterable[Fate]) -> None:
        routing = self.routing
        for fate in fates:
            record = fate.record
            judged = record.offset in self.ranges[record.partition]
            marks = Mark.JUDGED if judged else 0
            marks |= Mark.REJECT if fate.reason else 0
            marks |= Mark.FILTERED if fate.filtered else 0
            marks |= Mark.LINE_KEPT if routing.keeps(routing.sink, record.timestamp) else 0
            marks |= Mark.LETTER_KEPT if routing.keeps(routing.dead_letters, record.timestamp) else 0
            new = self.expected.add(Origin(record.partition, record.offset), self.content_of(fate), marks)
            self.judged += new and judged
            self.filtered += bool(new and judged and fate.filtered)
            timestamp = max(0, record.timestamp)
            self.oldest = timestamp if self.oldest is None else min(self.oldest, timestamp)

    def content_of(self, fate: Fate) -> int:
        written = fate.written
        if fate.filtered:
            return hash((fate.filtered, Mark.FILTERED))
        if fate.reason:
            return hash((fate.reason, written.key, written.value))
        has_time = written.timestamp > 0 and not self.routing.sink.append_time  # 0 and none are written as "now"
        self._by_text |= not has_time
        return self._content(fate.to, written, written.timestamp if has_time else None)

    def _content(self, place: Partition, line: OutgoingRecord | Record, timestamp: int | None) -> int:
        return hash((None if self.routing.anywhere else place.number, timestamp, line.key, line.value))

    @property
    def lacks_letters(self) -> bool:
        reject = Mark.JUDGED | Mark.REJECT
        return any(marks & (reject | Mark.LETTER) == reject for marks in self.expected.marks)

    @property
    def lacks_lines(self) -> bool:
        return any(marks & Mark.JUDGED and not marks & (Mark.REJECT | Mark.OUTCOME) for marks in self.expected.marks)

    def letter(self, record: Record) -> None:
        if (found := origin_of(record.headers)) is None:
            return
        letter, origin, marks = Letter.of(record), Origin(*found), self.expected.marks
        put_back, foreign = REPLAYS in ours(record.headers), self._is_of_another_topic(record, origin)
        place = None if put_back or foreign else origin
        self._note_place(record, place, compacted=self.routing.dead_letters.compacted)
        if foreign:
            return
        if (row := self.expected.row(origin)) is None:
            if self._is_judged(origin):
                self.orphans.append((origin, record))
                self.refuse_too_much(len(self.orphans))
        elif put_back:  # a replay wrote it again
            marks[row] |= Mark.LETTER
        elif marks[row] & Mark.ORIGINAL:
            self._note(row, Finding(Defect.DOUBLED, origin, str_of(record), "another dead letter of the same record"))
        else:
            marks[row] |= Mark.LETTER | Mark.ORIGINAL
            if marks[row] & Mark.LINE:
                self._note_both(row, record)
            content = hash((letter.reason, record.key, record.value))
            same, by_the_topics = content == self.expected.contents[row], letter.reason in BY_THE_TOPICS
            if not (same if marks[row] & Mark.REJECT else by_the_topics):
                self.letters[row] = letter
                self.refuse_too_much(len(self.letters))

    def line(self, record: Record) -> None:
        origin, replayed = _named(record.headers)
        self._note_place(record, None if replayed else origin, compacted=self.routing.sink.compacted)
        if origin is None:
            self._nameless_line(record)
        elif replayed and self._is_of_another_topic(record, origin):
            return
        elif (row := self.expected.row(origin)) is not None:
            self._named_line(record, row, Mark.REPLAYED if replayed else Mark.LINE)
        elif self._is_judged(origin):
            self.orphans.append((origin, record))
            self.refuse_too_much(len(self.orphans))
        elif not replayed and self._is_beyond(origin):
            self._keep(record)

    def _named_line(self, record: Record, row: int, mark: int) -> None:
        """Match a line that names its record; a replay's lines may come late and in any order."""
        marks = self.expected.marks
        if marks[row] & Mark.NAMED or not (self._is_free(row) or self._reassign(row)):
            self._note(row, again(self.expected.origin(row), record))
            return
        if mark == Mark.LINE and marks[row] & Mark.LETTER:
            self._note_both(row, record)
        marks[row] |= mark | Mark.NAMED
        accepted_since = marks[row] & Mark.REJECT and mark == Mark.REPLAYED
        if not accepted_since and self.expected.contents[row] not in self._contents(record):
            self.instead[row] = record
            self.refuse_too_much(len(self.instead))
        if mark == Mark.LINE:
            self._judge_order(record, row)

    def _reassign(self, row: int) -> bool:
        """Reassign a record's nameless line to another record with the same hash; return whether that is possible."""
        marks, content = self.expected.marks, self.expected.contents[row]
        free = [each for each in self.expected.rows(content) if self._is_free(each)]
        if free:
            marks[min(free, key=lambda each: marks[each] & Mark.LETTER)] |= Mark.LINE
        elif self.routing.sink.append_time:  # the line was matched by text alone
            self.known_by_text -= 1
            self.not_judged[Why.UNNAMED] += 1
        else:
            return False
        marks[row] &= ~Mark.LINE
        return True

    def _contents(self, record: Record) -> Sequence[int]:
        """Return the hashes to look a line up by: with its timestamp, and also without it if some records lack one."""
        exact = self._content(record.partition, record, record.timestamp)
        return [exact, self._content(record.partition, record, None)] if self._by_text else [exact]

    def _nameless_line(self, record: Record) -> None:
        for without_time, content in enumerate(self._contents(record)):
            if (row := self._choose(content, record.partition)) is not None:
                if self.expected.marks[row] & Mark.LETTER:
                    self._note_both(row, record)
                self.expected.marks[row] |= Mark.LINE
                self.known_by_text += without_time
                if not (without_time or self.expected.is_ambiguous(content)):
                    self._judge_order(record, row)
                self._note_place(record, self.expected.origin(row), compacted=self.routing.sink.compacted)
                return
        if self.routing.sink.append_time:
            self.not_judged[Why.UNNAMED] += self._is_asked_for(record)
        else:
            self._keep(record)

    def _choose(self, content: int, place: Partition) -> int | None:
        """Return the row that a nameless line belongs to."""
        best, taken = None, self._taken.get(content, 0)
        for number, row in enumerate(self.expected.rows(content, taken), taken):
            if not self._is_free(row):
                if number == self._taken.get(content, 0):
                    self._taken[content] = number + 1
                continue
            source, offset = self.expected.origin(row)
            has_letter = bool(self.expected.marks[row] & Mark.LETTER)
            if not has_letter and offset > self._last.get((source, place), (-1, -1))[0]:
                return row
            if best is None or (self.expected.marks[best] & Mark.LETTER and not has_letter):
                best = row
        return best

    def _is_free(self, row: int) -> bool:
        return not self.expected.marks[row] & (Mark.LINE | Mark.REPLAYED)

    def _keep(self, record: Record) -> None:
        """Keep a line without a record if it must have one: a record outside the range may explain it."""
        time = None if self.routing.sink.append_time else record.timestamp
        content = self._content(record.partition, record, time)
        is_alike = next(self.expected.rows(content), None) is not None
        if is_alike or self._is_asked_for(record):
            self._strange[is_alike] += 1
            if self._strange[is_alike] <= MOST_STRANGE:
                self.surplus[content].append(record)

    @property
    def too_many(self) -> int:
        """How many lines without a record are not kept, so nothing is known of them."""
        return sum(max(0, count - MOST_STRANGE) for count in self._strange.values())

    def _is_asked_for(self, record: Record) -> bool:
        return self._times is not None and self._times[0] <= record.timestamp < self._times[1]

    def _is_of_another_topic(self, record: Record, origin: Origin) -> bool:
        """Whether a line or dead letter is of a deleted topic with the same name; an unknown id matches any."""
        judged = self.ranges.get(origin.partition)
        topic_id = topic_id_of(ours(record.headers).get(TOPIC_ID, ""))
        return judged is not None and topics_differ(topic_id, judged.topic_id)

    def _is_judged(self, origin: Origin) -> bool:
        return origin.partition in self.ranges and origin.offset in self.ranges[origin.partition]

    def _is_beyond(self, origin: Origin) -> bool:
        """Whether a line names an unknown partition, or a record after the range that may not exist."""
        known = self.ranges.get(origin.partition)
        return origin.partition not in self.sources if known is None else origin.offset >= known.end

    def _judge_order(self, record: Record, row: int) -> None:
        origin = self.expected.origin(row)
        pair = origin.partition, record.partition
        before, read_to = self._last.get(pair, (-1, -1))
        if record.offset < read_to:  # an earlier part of the sink, read later: its order was judged already
            return
        if origin.offset < before:
            detail = f"its line follows that of offset {before}"
            self._note(row, Finding(Defect.OUT_OF_ORDER, origin, str_of(record), detail))
        self._last[pair] = max(before, origin.offset), record.offset

    def _note_both(self, row: int, record: Record) -> None:
        detail = f"it has both a line and a dead letter; this is {shown(record.value)}"
        self._note(row, Finding(Defect.BOTH, self.expected.origin(row), str_of(record), detail))

    def is_strange(self, record: Record) -> bool:
        """Whether a line neither names a record nor matches one."""
        no_row = all(next(self.expected.rows(each), None) is None for each in self._contents(record))
        return no_row and _named(record.headers)[0] is None

    def _note_place(self, record: Record, origin: Origin | None, *, compacted: bool) -> None:
        """Note a place that shows what retention or compaction may have deleted; replays write too late for that."""
        if origin is not None:
            pair, place = (origin.partition, record.partition), (record.offset, origin.offset)
            self.first[pair] = min(self.first.get(pair, place), place)
        if compacted:
            which, latest = (record.partition, hash(record.key)), (record.offset, origin or ELSEWHERE)
            self.latest[which] = max(self.latest.get(which, latest), latest)

    def _note(self, row: int, finding: Finding) -> None:
        if self.expected.marks[row] & Mark.JUDGED:
            self.findings.append(finding)
            self.refuse_too_much(len(self.findings))

    def refuse_too_much(self, strange: int) -> None:
        """Raise WinnowError if so many do not match that the configuration is probably not the service's."""
        if strange > MOST_STRANGE:
            where = ", ".join(sorted({each.topic for each in self.ranges}))
            sink = self.routing.sink.topic
            cause = f"more than {MOST_STRANGE} records of {where} or lines of {sink} do not match"
            cure = "make sure that the configuration is the service's, and audit less with --to or --sample"
            raise WinnowError(cause, cure)


def _named(headers: Headers) -> tuple[Origin | None, bool]:
    """Return the record that a line names, if any, and whether a replay wrote the line."""
    own = ours(headers)
    where, _, at = own.get(SOURCE, "").rpartition("@")
    topic, _, place = where.rpartition("-")
    number, offset = whole_number(place), whole_number(at)
    if number is None or offset is None:
        return None, False
    return Origin(Partition(topic, number), offset), REPLAYS in own
