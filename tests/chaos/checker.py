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
    silent            during a fault that a person must know of, no line of the log told it
    held up           readers of a partition that a fault should have spared waited for it
    stuck             a partition stood still because of another one's fault, or for ever
    came back         a deleted topic was created again, and not by its owner
    not paused        the service took records although a person had paused it
    crashed           the service ended by itself and did not say why

A line is not lost if the source does not hold it at the end: then Kafka has cut it (`kept` events).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tests.chaos.grouped import DEAD, SINK, Fault, History, Numbers, Said, joined
from tests.chaos.waits import pauses

EXAMPLES = 5
RESET_SECONDS = 2.0
"""How long before its record in the history a committed offset may have been read."""
HELD_UP_SECONDS = 10.0
"""Far more than the two seconds that are wanted, because the machine is busy; the report shows the pause itself."""
HEARD_SECONDS = 2.0
"""How long after its time a line of the log may be recorded."""


class Finding(NamedTuple):
    """How often an anomaly was found, and the first examples."""

    name: str
    times: int
    examples: tuple[str, ...] = ()


def lost(history: History) -> Finding:
    """Find acknowledged lines that a reader did not get."""
    return _finding("lost", _lost(history))


def _lost(history: History) -> Iterator[tuple[int, str]]:
    for reader in history.readers:
        sink, dead = history.seen(reader, SINK), history.seen(reader, DEAD)
        for stream in history.streams:
            got = np.concatenate([_of(sink, stream), _of(dead, stream)])
            missing = np.setdiff1d(history.expected("ok", stream), np.concatenate([got, history.cut(stream)]))
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
            wrong = np.intersect1d(numbers, joined(history.bad[stream]))
            yield len(wrong), f"{reader}: bad in the sink: stream {stream}: {_ranges(wrong)}"
        for stream, numbers in history.seen(reader, DEAD).items():
            wrong = np.setdiff1d(numbers, joined([*history.bad[stream], *history.either[stream]]))
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
    """Find committed offsets of the group that decreased, although no operator has set them."""
    return _finding("offset moved back", _moved_back(history))


def _moved_back(history: History) -> Iterator[tuple[int, str]]:
    for partition, offsets in history.committed.items():
        resets = [at for at, which in history.resets if which == partition]
        for (since, before), (at, after) in pairwise(offsets):
            if after < before and not any(since - RESET_SECONDS <= reset <= at for reset in resets):
                yield 1, f"partition {partition}: from {before} to {after} at {at:.1f} s"


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


def silent(history: History) -> Finding:
    """Find faults that a person must know of, and that no line of the log told while they lasted."""
    return _finding(
        "silent",
        (
            (1, f"{fault.name} ({fault.target}): nothing said matches {fault.told!r}")
            for fault in history.faults
            if fault.told and telling(history, fault) is None
        ),
    )


def telling(history: History, fault: Fault) -> Said | None:
    """Return the first line of the log that tells a fault while it lasts; None if nothing needs to be told."""
    until = fault.until + HEARD_SECONDS
    lines = (said for said in history.said if fault.told and fault.began <= said.at <= until)
    return next((said for said in lines if re.search(fault.told, said.text)), None)


def held_up(history: History) -> Finding:
    """Find faults during which readers of the other partitions waited too long, after the brokers' own elections."""
    return _finding(
        "held up",
        (
            (1, f"{pause.fault.name}: {pause.settled:.1f} s")
            for pause in pauses(history)
            if pause.settled > HELD_UP_SECONDS
        ),
    )


def _seen(anomaly: str) -> Callable[[History], Finding]:
    """Return what finds the anomalies of this name that the nemesis has seen."""

    def find(history: History) -> Finding:
        seen = (each for each in history.seen_by_nemesis if each.anomaly == anomaly)
        return _finding(anomaly, ((1, f"{each.what} at {each.at:.1f} s") for each in seen))

    return find


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
    silent,
    held_up,
    *map(_seen, ("stuck", "came back", "not paused", "crashed")),
)


def judge(history: History) -> list[Finding]:
    """Return a finding for every kind of anomaly; one that was not found has `times` 0."""
    return [find(history) for find in ANOMALIES]


def _finding(name: str, found: Iterable[tuple[int, str]]) -> Finding:
    some = [(count, example) for count, example in found if count]
    return Finding(name, sum(count for count, _ in some), tuple(example for _, example in some[:EXAMPLES]))


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
