"""
What `winnow audit` does: it compares a range of the source with what the sink and the dead letters hold of it.

It knows a line by the record that its header names, or else by its key, its timestamp and its text, and a dead letter
by the record that it names. Lines of one source partition must stand in the order of their records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from app.headers import REPLAYS, SOURCE, origin_of, ours, whole_number
from app.model import Partition
from app.operate.letters import Letter
from app.operate.pairs import text_of
from app.records import Fate, Record

BY_THE_TOPICS = ("too_large", "refused", "parser_error")
"""Reasons that the parser alone does not decide: a line that is expected may be a dead letter for one of them."""
SHOWN = 200
"""How much of a line is shown."""

Content = tuple[int, bytes | None, bytes | None]
Origin = tuple[Partition, int]


class Kind(StrEnum):
    """What can be wrong."""

    LOST = "lost"
    DOUBLED = "doubled"
    CHANGED = "changed"
    OUT_OF_ORDER = "out of order"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    Something that is wrong with what became of a record.

    Args:
        kind: what is wrong.
        partition: the source partition of the record.
        offset: its offset.
        found_at: where in the sink or in the dead letters that was seen; empty where nothing is.
        detail: what was expected, and what was found.
    """

    kind: Kind
    partition: Partition
    offset: int
    found_at: str
    detail: str

    def as_json(self) -> dict[str, Any]:
        """Return all of it, as `--json` shows it."""
        return {
            "kind": self.kind.value,
            "topic": self.partition.topic,
            "partition": self.partition.number,
            "offset": self.offset,
            "found_at": self.found_at or None,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Range:
    """
    Offsets of one source partition.

    Args:
        begin: the first that is judged.
        end: the offset after the last that is judged.
        known_from: the first that is read: what may stand in the sink before the range.
        known_to: the offset after the last that is read.
    """

    begin: int
    end: int
    known_from: int
    known_to: int

    def __contains__(self, offset: int) -> bool:
        return self.begin <= offset < self.end


class _Expected(NamedTuple):
    partition: Partition
    offset: int


class Comparison:
    """
    Compares records with what became of them.

    Give it first what tasks make of the records, then all that lies in the sink and in the dead letters, in order.

    Args:
        ranges: what is judged of each source partition.
        timeless: whether the sink gives lines the time of writing; then one without a header is not known for certain.
    """

    def __init__(self, ranges: Mapping[Partition, Range], *, timeless: bool = False) -> None:
        self._ranges = ranges
        self.timeless = timeless
        self._lines: defaultdict[Content, list[_Expected]] = defaultdict(list)
        """Lines that were not found yet."""
        self._contents: dict[_Expected, Content] = {}
        """The same by their records."""
        self._taken: set[_Expected] = set()
        """Records whose line was found."""
        self._nameless: Counter[tuple[bytes | None, bytes | None]] = Counter()
        """Lines that have neither a header nor the time of their record, by key and text."""
        self._found: dict[Content, _Expected] = {}
        """Lines that were found, by what they are."""
        self._rejects: dict[Origin, Fate] = {}
        self._letters: defaultdict[Origin, list[Letter]] = defaultdict(list)
        self._replayed: set[Origin] = set()
        """Records whose line a replay of the dead letters has written."""
        self._strangers: dict[tuple[int, bytes | None] | _Expected, Record] = {}
        """Lines that nobody expects, by timestamp and key, or by the record that they name."""
        self._last: dict[tuple[Partition, Partition], tuple[int, int]] = {}
        """For each source partition, in each of the sink: the largest offset that was found, and where it stands."""
        self._findings: list[Finding] = []
        self.judged = 0
        self.known_by_text = 0
        """How many lines have neither a header nor the time of their record; after `findings`."""
        self.oldest: int | None = None
        """The smallest timestamp of a record, in milliseconds."""
        self.newest: int | None = None
        """The largest one."""

    def expect(self, fates: Iterable[Fate]) -> None:
        """Take in what tasks make of consecutive records."""
        for fate in fates:
            record = fate.record
            judged = record.offset in self._ranges[record.partition]
            self.judged += judged
            self.oldest = record.timestamp if self.oldest is None else min(self.oldest, record.timestamp)
            self.newest = record.timestamp if self.newest is None else max(self.newest, record.timestamp)
            if not fate.reason:
                line = fate.written
                expected = _Expected(record.partition, record.offset)
                content = line.timestamp, line.key, line.value
                self._lines[content].append(expected)
                self._contents[expected] = content
            elif judged:
                self._rejects[record.partition, record.offset] = fate

    def line(self, record: Record) -> None:
        """Take in a record of the sink."""
        content = record.timestamp, record.key, record.value
        expected = self._lines.get(content)
        if (which := _named(record)) is not None:
            self._named_line(record, which)
        elif self.timeless:
            self._nameless[record.key, record.value] += 1
        elif expected:
            self._found_line(record, self._choose(expected, record.partition), content)
        elif (first := self._found.get(content)) is not None:
            self._note(Kind.DOUBLED, first, str_of(record), f"{shown(record.value)} stands there again")
        else:
            self._strangers.setdefault((record.timestamp, record.key), record)

    def _named_line(self, record: Record, which: _Expected) -> None:
        """Take in a line that names its record; one of a replay may come late, and in any order."""
        content, replayed = self._contents.get(which), REPLAYS in ours(record.headers)
        if replayed:
            self._replayed.add(which)
        if content is None:
            if which in self._taken and not replayed:
                self._note(Kind.DOUBLED, which, str_of(record), f"{shown(record.value)} stands there again")
            self._strangers.setdefault(which, record)
            return
        if not self._agree(content, record):
            self._note(Kind.CHANGED, which, str_of(record), _instead(content[2], record))
        if replayed:
            self._take(content, which)
        else:
            self._found_line(record, which, content)

    def _agree(self, content: Content, record: Record) -> bool:
        timestamp, *others = content
        return others == [record.key, record.value] and (self.timeless or timestamp == record.timestamp)

    def _choose(self, expected: Sequence[_Expected], sink: Partition) -> _Expected:
        """Return the record that a line stands for; of several with the same line, one that keeps the order."""
        in_order = (each for each in expected if each.offset > self._last.get((each.partition, sink), (-1, -1))[0])
        return next(in_order, expected[0])

    def _take(self, content: Content, which: _Expected) -> None:
        self._lines[content].remove(which)
        del self._contents[which]
        self._taken.add(which)
        self._found.setdefault(content, which)

    def _found_line(self, record: Record, which: _Expected, content: Content) -> None:
        self._take(content, which)
        pair = which.partition, record.partition
        before, read_to = self._last.get(pair, (-1, -1))
        if record.offset < read_to:  # an earlier part of the sink, which is read later: the order was judged already
            return
        if which.offset < before:
            self._note(Kind.OUT_OF_ORDER, which, str_of(record), f"it comes after the line of offset {before}")
        self._last[pair] = max(before, which.offset), record.offset

    def letter(self, record: Record) -> None:
        """Take in a record of the dead letters; those that a replay has put back are no new ones."""
        origin = origin_of(record.headers)
        if origin is None or REPLAYS in ours(record.headers):
            return
        if origin[0] in self._ranges and origin[1] in self._ranges[origin[0]]:
            self._letters[origin].append(Letter.of(record))

    @property
    def lines_missing(self) -> bool:
        """Whether the line of a record that is judged was not found yet."""
        return any(self._is_judged(each) for left in self._lines.values() for each in left)

    @property
    def letters_missing(self) -> bool:
        """Whether a dead letter that is expected, or that would explain a missing line, was not found yet."""
        return self.lines_missing or any(origin not in self._letters for origin in self._rejects)

    def findings(self) -> list[Finding]:
        """Return what is wrong, in the order of the source."""
        found = [*self._findings, *self._without_line(), *self._of_letters()]
        return sorted(found, key=lambda each: (each.partition, each.offset, each.kind))

    def _without_line(self) -> Iterator[Finding]:
        for (timestamp, key, value), left in self._lines.items():
            for which in filter(self._is_judged, left):
                if letters := self._letters.get((which.partition, which.offset)):
                    yield from _rejected_instead(which, letters[0])
                elif self._nameless[key, value]:
                    self._nameless[key, value] -= 1
                    self.known_by_text += 1
                elif (stranger := self._strangers.get((timestamp, key))) is not None:
                    yield Finding(Kind.CHANGED, *which, str_of(stranger), _instead(value, stranger))
                else:
                    yield Finding(Kind.LOST, *which, "", f"the line {shown(value)} is not in the sink")

    def _of_letters(self) -> Iterator[Finding]:
        for origin, fate in self._rejects.items():
            letters = self._letters.get(origin, [])
            if not letters and origin not in self._replayed:
                yield self._without_letter(fate)
            elif letters:
                yield from _differs(origin, fate, letters[0])
        for origin, letters in self._letters.items():
            for letter in letters[1:]:
                yield Finding(Kind.DOUBLED, *origin, str_of(letter.record), "another dead letter of the same record")

    def _without_letter(self, fate: Fate) -> Finding:
        record = fate.record
        which = _Expected(record.partition, record.offset)
        stranger = self._strangers.get(which) or self._strangers.get((record.timestamp, record.key))
        if stranger is not None:
            detail = f"rejected now for {fate.reason}, found {shown(stranger.value)}"
            return Finding(Kind.CHANGED, record.partition, record.offset, str_of(stranger), detail)
        return Finding(
            Kind.LOST, record.partition, record.offset, "", f"no dead letter, expected one for {fate.reason}"
        )

    def _is_judged(self, which: _Expected) -> bool:
        return which.offset in self._ranges[which.partition]

    def _note(self, kind: Kind, which: _Expected, found_at: str, detail: str) -> None:
        if self._is_judged(which):
            self._findings.append(Finding(kind, *which, found_at, detail))


def _rejected_instead(which: _Expected, letter: Letter) -> Iterator[Finding]:
    if letter.reason not in BY_THE_TOPICS:
        detail = f"rejected then for {letter.reason}, now it would be a line"
        yield Finding(Kind.CHANGED, *which, str_of(letter.record), detail)


def _differs(origin: Origin, fate: Fate, letter: Letter) -> Iterator[Finding]:
    if letter.reason != fate.reason and letter.reason not in BY_THE_TOPICS:
        detail = f"rejected then for {letter.reason}, now for {fate.reason}"
        yield Finding(Kind.CHANGED, *origin, str_of(letter.record), detail)
    elif (letter.record.key, letter.record.value) != (fate.written.key, fate.written.value):
        yield Finding(Kind.CHANGED, *origin, str_of(letter.record), _instead(fate.written.value, letter.record))


def _instead(expected: bytes | None, found: Record) -> str:
    return f"expected {shown(expected)}, found {shown(found.value)}"


def _named(record: Record) -> _Expected | None:
    """Return the record that a line names by its header; None where it names none."""
    place, _, at = ours(record.headers).get(SOURCE, "").rpartition("@")
    topic, _, text = place.rpartition("-")
    number, offset = whole_number(text), whole_number(at)
    return None if number is None or offset is None else _Expected(Partition(topic, number), offset)


def str_of(record: Record) -> str:
    """Return where a record lies."""
    return f"{record.partition}@{record.offset}"


def shown(value: bytes | None) -> str:
    """Return as much of a value as a person wants to see."""
    text = text_of(value) or ""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


class Unit(NamedTuple):
    """Source partitions, and the partitions of the sink and of the dead letters that take what comes of them."""

    sources: Sequence[Partition]
    lines: Sequence[Partition]
    letters: Sequence[Partition]


def units(
    sources: Collection[Partition],
    sink: tuple[str, int],
    dead_letters: tuple[str, int],
    *,
    by_key: bool,
    anywhere: bool,
) -> list[Unit]:
    """
    Return what can be compared alone.

    Args:
        sources: the source partitions.
        sink: the sink, and how many partitions it has.
        dead_letters: the same of the dead letters.
        by_key: whether the key of a line decides its partition: then everything belongs together.
        anywhere: whether sink and dead letters may have had fewer partitions once: then a line may lie in any of them.
    """

    def of(some: Sequence[Partition], numbers: Iterable[int]) -> Unit:
        letters = range(dead_letters[1]) if anywhere else sorted({each.number % dead_letters[1] for each in some})
        return Unit(
            some,
            [Partition(sink[0], number) for number in numbers],
            [Partition(dead_letters[0], number) for number in letters],
        )

    if by_key or anywhere:
        return [of(sorted(sources), range(sink[1]))]
    together: defaultdict[int, list[Partition]] = defaultdict(list)
    for each in sorted(sources):
        together[each.number % sink[1]].append(each)
    return [of(some, [number]) for number, some in sorted(together.items())]


def windows(ranges: Mapping[Partition, Range], records: int, margin: int) -> list[dict[Partition, Range]]:
    """
    Cut ranges of some source partitions side by side, so that each window has about so many records.

    Args:
        ranges: what is to be judged.
        records: how many of a window are judged.
        margin: how many more are read on each side: they may stand between those that are judged.
    """
    total = sum(each.end - each.begin for each in ranges.values())
    count = max(1, -(-total // records))
    cut = []
    for number in range(count):
        window = {}
        for partition, whole in ranges.items():
            length = whole.end - whole.begin
            begin, end = (whole.begin + length * place // count for place in (number, number + 1))
            if begin < end:
                known = max(whole.known_from, begin - margin), min(whole.known_to, end + margin)
                window[partition] = Range(begin, end, *known)
        if window:
            cut.append(window)
    return cut


def counted(findings: Iterable[Finding]) -> dict[str, int]:
    """Return how many findings there are of each kind."""
    counts = Counter(each.kind for each in findings)
    return {kind.value.replace(" ", "_"): counts[kind] for kind in Kind}
