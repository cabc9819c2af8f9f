"""
Finds anomalies in a history, by Jepsen's names. Pure: the same events always give the same findings.

    lost              an acknowledged line is neither in the sink nor among the dead letters
    duplicated        a line is in the output twice
    reordered         a line is in the output after a later line of its stream
    aborted read      the output has a line of a transaction that its writer aborted (Adya's G1a)
    phantom           the output has a line that nobody wrote
    misplaced         a good line is a dead letter, a bad line is in the sink, or a line has the wrong content
    torn transaction  readers got some records of one of the service's transactions, but not all
    zombie record     readers got a record of a stopped worker after one of its successor
    offset moved back the group's committed offset of a partition decreased
    offset read twice a reader got an offset again, or a smaller one
    open transaction  after the service stopped, an open transaction blocks readers
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.chaos.history import Event

Numbers = NDArray[np.int64]
EXAMPLES = 5
SINK, DEAD = "sink", "dead"


class Finding(NamedTuple):
    """How often an anomaly was found, and the first examples."""

    name: str
    times: int
    examples: tuple[str, ...] = ()


class Run(NamedTuple):
    """Adjacent records of one stream, as a reader got them."""

    at: float
    partition: int
    offset: int
    stream: int
    first: int
    records: int
    transaction: str


class Mark(NamedTuple):
    """The last stable offset (`stable`) and the high watermark (`high`) of an output partition."""

    at: float
    stable: int
    high: int


class Fault(NamedTuple):
    """A fault: when it was injected, and when it was repaired."""

    name: str
    target: str
    at: float
    until: float


@dataclass
class History:
    """The events of a run, grouped by kind."""

    setup: Event = field(default_factory=dict)
    written: dict[str, dict[int, list[Numbers]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    bad: dict[int, list[Numbers]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[tuple[str, str], list[Run]] = field(default_factory=lambda: defaultdict(list))
    altered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    closed: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    marks: dict[tuple[str, int], list[Mark]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    faults: list[Fault] = field(default_factory=list)
    successors: dict[str, str] = field(default_factory=dict)
    """From each stopped worker to the one that took over; a worker is the prefix of its transactions' names."""
    final: list[tuple[str, int, int, int]] = field(default_factory=list)
    writes: list[tuple[float, int]] = field(default_factory=list)
    ends_at: float = 0.0

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """Group the events of a history."""
        history = cls()
        for event in events:
            history.ends_at = max(history.ends_at, event["at"])
            if (add := HANDLERS.get(event["kind"])) is not None:
                add(history, event)
        return history

    @property
    def readers(self) -> list[str]:
        """The names of all readers."""
        return sorted({reader for reader, _ in self.reads})

    def expected(self, outcome: str, stream: int) -> Numbers:
        """Return the sequence numbers of a stream that were written with this outcome."""
        return _joined(self.written[outcome].get(stream, ()))

    @property
    def streams(self) -> list[int]:
        """All streams that were written to."""
        return sorted({stream for outcome in self.written.values() for stream in outcome})

    def seen(self, reader: str, role: str) -> dict[int, Numbers]:
        """Return the sequence numbers that a reader got from a topic, per stream, in the order of reading."""
        found: dict[int, list[Numbers]] = defaultdict(list)
        for run in self.reads.get((reader, role), ()):
            found[run.stream].append(np.arange(run.first, run.first + run.records))
        return {stream: _joined(numbers) for stream, numbers in found.items()}


def _add_write(history: History, event: Event) -> None:
    numbers = np.arange(event["first"], event["first"] + event["count"])
    history.written[event["outcome"]][event["stream"]].append(numbers)
    history.bad[event["stream"]].append(np.array(event["bad"], np.int64))
    if event["outcome"] != "aborted":
        history.writes.append((event["at"], event["count"]))


def _add_read(history: History, event: Event) -> None:
    runs = [Run(event["at"], event["partition"], *row) for row in event["runs"]]
    history.reads[event["reader"], event["role"]] += runs
    history.altered[event["reader"]] += event.get("altered", ())


def _add_marks(history: History, event: Event) -> None:
    for role, partition, stable, high in event["rows"]:
        history.marks[role, partition].append(Mark(event["at"], stable, high))


def _add_committed(history: History, event: Event) -> None:
    for partition, offset in event["offsets"].items():
        history.committed[partition].append((event["at"], offset))


def _add_healed(history: History, event: Event) -> None:
    for number in reversed(range(len(history.faults))):
        fault = history.faults[number]
        if (fault.name, fault.target) == (event["name"], event["target"]):
            history.faults[number] = fault._replace(until=event["at"])
            return


HANDLERS: Mapping[str, Callable[[History, Event], None]] = {
    "setup": lambda history, event: history.setup.update(event),
    "write": _add_write,
    "read": _add_read,
    "closed": lambda history, event: history.closed[event["reader"]].update({event["transaction"]: event["count"]}),
    "marks": _add_marks,
    "committed": _add_committed,
    "fault": lambda history, event: history.faults.append(
        Fault(event["name"], event["target"], event["at"], event["at"])
    ),
    "healed": _add_healed,
    "taken over": lambda history, event: history.successors.update({event["zombie"]: event["successor"]}),
    "finished": lambda history, event: history.final.extend(tuple(row) for row in event["rows"]),
}


def lost(history: History) -> Finding:
    """Find acknowledged lines that a reader did not get."""
    return _finding("lost", _lost(history))


def _lost(history: History) -> Iterator[tuple[int, str]]:
    for reader in history.readers:
        sink, dead = history.seen(reader, SINK), history.seen(reader, DEAD)
        for stream in history.streams:
            got = np.concatenate([_of(sink, stream), _of(dead, stream)])
            missing = np.setdiff1d(history.expected("ok", stream), got)
            yield len(missing), f"{reader}: stream {stream}: {_ranges(missing)}"


def duplicated(history: History) -> Finding:
    """Find lines that a reader got more than once."""
    return _finding("duplicated", _duplicated(history))


def _duplicated(history: History) -> Iterator[tuple[int, str]]:
    for reader in history.readers:
        sink, dead = history.seen(reader, SINK), history.seen(reader, DEAD)
        for stream in sink.keys() | dead.keys():
            numbers, times = np.unique(np.concatenate([_of(sink, stream), _of(dead, stream)]), return_counts=True)
            again = numbers[times > 1]
            yield int((times - 1).sum()), f"{reader}: stream {stream}: {_ranges(again)}"


def reordered(history: History) -> Finding:
    """Find lines whose first occurrence comes after a later line of their stream."""
    return _finding("reordered", _reordered(history))


def _reordered(history: History) -> Iterator[tuple[int, str]]:
    for reader in history.readers:
        for role in (SINK, DEAD):
            for stream, numbers in history.seen(reader, role).items():
                firsts = numbers[np.sort(np.unique(numbers, return_index=True)[1])]
                late = firsts[firsts < np.maximum.accumulate(firsts)]
                yield len(late), f"{reader}: {role}: stream {stream}: {_ranges(late)}"


def aborted_read(history: History) -> Finding:
    """Find lines in the output that their writer aborted (Adya's G1a)."""
    return _finding("aborted read", _read_with_outcome(history, "aborted"))


def _read_with_outcome(history: History, outcome: str) -> Iterator[tuple[int, str]]:
    for reader in history.readers:
        for role in (SINK, DEAD):
            for stream, numbers in history.seen(reader, role).items():
                wrong = np.intersect1d(numbers, history.expected(outcome, stream))
                yield len(wrong), f"{reader}: {role}: stream {stream}: {_ranges(wrong)}"


def phantom(history: History) -> Finding:
    """Find lines in the output that nobody wrote."""
    return _finding("phantom", _phantom(history))


def _phantom(history: History) -> Iterator[tuple[int, str]]:
    for reader in history.readers:
        for role in (SINK, DEAD):
            for stream, numbers in history.seen(reader, role).items():
                known = np.concatenate([history.expected(each, stream) for each in ("ok", "aborted", "unknown")])
                foreign = np.setdiff1d(numbers, known)
                yield len(foreign), f"{reader}: {role}: stream {stream}: {_ranges(foreign)}"


def misplaced(history: History) -> Finding:
    """Find lines in the wrong topic, and lines with the wrong content."""
    return _finding("misplaced", _misplaced(history))


def _misplaced(history: History) -> Iterator[tuple[int, str]]:
    for reader in history.readers:
        for stream, numbers in history.seen(reader, SINK).items():
            wrong = np.intersect1d(numbers, _joined(history.bad[stream]))
            yield len(wrong), f"{reader}: bad in the sink: stream {stream}: {_ranges(wrong)}"
        for stream, numbers in history.seen(reader, DEAD).items():
            wrong = np.setdiff1d(numbers, _joined(history.bad[stream]))
            yield len(wrong), f"{reader}: good among the dead letters: stream {stream}: {_ranges(wrong)}"
        yield from ((1, f"{reader}: {what}") for what in history.altered[reader])


def torn(history: History) -> Finding:
    """Find transactions of which a reader got only some records; the last record of each holds the full count."""
    return _finding("torn transaction", _torn(history))


def _torn(history: History) -> Iterator[tuple[int, str]]:
    for reader in history.readers:
        seen: Counter[str] = Counter()
        for role in (SINK, DEAD):
            for run in history.reads.get((reader, role), ()):
                if run.transaction:
                    seen[run.transaction] += run.records
        closed = history.closed[reader]
        for transaction in seen.keys() | closed.keys():
            if seen[transaction] != closed.get(transaction):
                total = closed.get(transaction, "an unknown number")
                yield 1, f"{reader}: transaction {transaction}: {seen[transaction]} of {total}"


def zombie(history: History) -> Finding:
    """Find records of a stopped worker that readers got after the first one of its successor."""
    return _finding("zombie record", _zombie(history))


def _zombie(history: History) -> Iterator[tuple[int, str]]:
    zombies = {successor: zombie for zombie, successor in history.successors.items()}
    for (reader, role), runs in history.reads.items():
        stopped: set[str] = set()
        for run in runs:
            owner = run.transaction[: run.transaction.rfind(".") + 1]
            if owner in zombies:
                stopped.add(zombies[owner])
            elif owner in stopped:
                yield run.records, f"{reader}: {role}-{run.partition}@{run.offset}: {run.transaction}"


def moved_back(history: History) -> Finding:
    """Find committed offsets of the group that decreased."""
    return _finding(
        "offset moved back",
        (
            (1, f"partition {partition}: from {before} to {after} at {at:.1f} s")
            for partition, offsets in history.committed.items()
            for (_, before), (at, after) in pairwise(offsets)
            if after < before
        ),
    )


def read_twice(history: History) -> Finding:
    """Find offsets that a reader got although its position was already higher."""
    return _finding("offset read twice", _read_twice(history))


def _read_twice(history: History) -> Iterator[tuple[int, str]]:
    for (reader, role), runs in history.reads.items():
        position: dict[int, int] = defaultdict(int)
        for run in runs:
            if run.offset < position[run.partition]:
                yield 1, f"{reader}: {role}-{run.partition}: {run.offset} after {position[run.partition] - 1}"
            position[run.partition] = run.offset + run.records


def left_open(history: History) -> Finding:
    """Find partitions that readers cannot read to the end after the service has stopped."""
    return _finding(
        "open transaction",
        (
            (1, f"{role}-{partition}: readable up to {stable} of {high}")
            for role, partition, stable, high in history.final
            if stable < high
        ),
    )


ANOMALIES: Sequence[Callable[[History], Finding]] = (
    lost,
    duplicated,
    reordered,
    aborted_read,
    phantom,
    misplaced,
    torn,
    zombie,
    moved_back,
    read_twice,
    left_open,
)


class Stall(NamedTuple):
    """A time in which readers of an output partition waited for an open transaction."""

    where: str
    began: float
    ended: float
    after_repair: float
    """Seconds of it after the last fault was repaired."""

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.ended - self.began


def stalls(history: History, at_least: float = 1.0) -> list[Stall]:
    """
    Return the times in which the last stable offset of a partition stood still below its high watermark.

    The longest is first. `after_repair` counts from the repair of the last fault that began before the stall's end,
    because a service cannot make progress while, say, its broker is away.
    """
    found = []
    for (role, partition), marks in history.marks.items():
        for began, ended in _standing(marks):
            if ended - began >= at_least:
                repaired = max((min(f.until, ended) for f in history.faults if f.at <= ended), default=began)
                after = ended - max(began, repaired)
                found.append(Stall(f"{role}-{partition}", began, ended, after))
    return sorted(found, key=lambda stall: -stall.seconds)


def _standing(marks: Iterable[Mark]) -> Iterator[tuple[float, float]]:
    """Yield the begin and the end of each time in which the stable offset stood still below the high watermark."""
    began: Mark | None = None
    last: Mark | None = None
    for mark in marks:
        if began is not None and mark.stable > began.stable:
            yield began.at, mark.at
            began = None
        if mark.high > mark.stable and began is None:
            began = mark
        last = mark
        if mark.high == mark.stable:
            began = None
    if began is not None and last is not None:
        yield began.at, last.at


def idle_windows(history: History, seconds: float = 60.0) -> list[float]:
    """Return the starts of the windows in which lines were written but no live reader got one."""
    wrote = {int(at // seconds) for at, _ in history.writes}
    got = {int(run.at // seconds) for (reader, _), runs in history.reads.items() if reader != "final" for run in runs}
    return [number * seconds for number in sorted(wrote - got) if (number + 1) * seconds <= history.ends_at]


def judge(history: History) -> list[Finding]:
    """Return a finding for every kind of anomaly; one that was not found has `times` 0."""
    return [find(history) for find in ANOMALIES]


def _finding(name: str, found: Iterable[tuple[int, str]]) -> Finding:
    some = [(count, example) for count, example in found if count]
    return Finding(name, sum(count for count, _ in some), tuple(example for _, example in some[:EXAMPLES]))


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _of(seen: Mapping[int, Numbers], stream: int) -> Numbers:
    return seen.get(stream, np.zeros(0, np.int64))


def _ranges(numbers: Numbers) -> str:
    """Return the first few numbers as ranges: `3-7, 9`."""
    if not len(numbers):
        return ""
    ordered = np.unique(numbers)
    parts = np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1)
    ranges = [f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts[:EXAMPLES]]
    return ", ".join(ranges) + (", …" if len(parts) > EXAMPLES else "")
