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
    readers differ    two readers got different records at one offset
    skipped           a reader passed an offset at which another one got a record
    open transaction  after the service stopped, an open transaction blocks readers
    silent            during a fault that a person must know of, no line of the log told it
    held up           readers of a partition that a fault should have spared waited for it
    stuck             a partition stood still because of another one's fault, or for ever
    came back         a deleted topic was created again, and not by its owner
    not paused        the service took records although a person had paused it
    went on           the service read on in a partition that waits for a person
    crashed           the service ended by itself and did not say why
    displaced         a service lost its work to another one that had to leave it alone
    disagree          the product's own views differ: `winnow audit` from this checker, or, during a fault, the status
                      page, `winnow lag` and `winnow check --connect` on which partitions have a problem
    unknown           records of a partition wait, and no view knows for how long
    harmed nobody     every fault of a kind met nobody: the run proves nothing about it
    unfinished        nobody read the output at the end, when the service had stopped: the run proves nothing at all

A line is not lost if the source does not hold it at the end: then Kafka has cut it (`kept` events). Lines that the harness
itself adds to the sink (`planted` events) are no anomaly, but the audit must find them.

At least once, a line may come again only if its offset was not saved yet when the copy was written. So a restart or a
take-over doubles no more than what was written since the last save. Transactions are not compared.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations, pairwise
from typing import NamedTuple

import numpy as np

from tests.chaos.grouped import DEAD, LAST_READER, SINK, Fault, History, Numbers, Said, joined
from tests.chaos.waits import pauses

EXAMPLES = 5
RESET_SECONDS = 2.0
"""How long before its record in the history a committed offset may have been read."""
HELD_UP_SECONDS = 10.0
"""Far more than the intended two seconds, because the machine is busy; the report shows the pause itself."""
HEARD_SECONDS = 2.0
"""How long after its time a line of the log may be recorded."""


Found = tuple[int, str]
"""How often, and an example."""


class Finding(NamedTuple):
    """How often an anomaly was found, and the first examples."""

    name: str
    times: int
    examples: tuple[str, ...] = ()


def lost(history: History) -> Iterator[Found]:
    """Find acknowledged lines that a reader did not get."""
    for reader in history.readers:
        sink, dead = history.seen(reader, SINK), history.seen(reader, DEAD)
        for stream in history.streams:
            got = np.concatenate([_of(sink, stream), _of(dead, stream)])
            missing = np.setdiff1d(history.expected("ok", stream), np.concatenate([got, history.cut(stream)]))
            yield len(missing), f"{reader}: stream {stream}: {_ranges(missing)}"


def duplicated(history: History) -> Iterator[Found]:
    """Find lines that a reader got more than once, except planted ones and those that the guarantee allows."""
    for reader in history.readers:
        for stream, copies in _copies(history, reader).items():
            wrong = _copies_after_save(history, reader, stream, copies) if history.may_double else copies
            too_many = wrong - Counter({number: history.planted[stream, number] for number in wrong})
            yield too_many.total(), f"{reader}: stream {stream}: {_ranges(np.array(list(too_many), np.int64))}"


def _copies(history: History, reader: str) -> dict[int, Counter[int]]:
    """Return how many further copies a reader got of each line, by stream."""
    sink, dead = history.seen(reader, SINK), history.seen(reader, DEAD)
    found: dict[int, Counter[int]] = {}
    for stream in sink.keys() | dead.keys():
        numbers, times = np.unique(np.concatenate([_of(sink, stream), _of(dead, stream)]), return_counts=True)
        again = times > 1
        found[stream] = Counter(dict(zip(numbers[again].tolist(), (times[again] - 1).tolist(), strict=True)))
    return found


def _copies_after_save(history: History, reader: str, stream: int, copies: Counter[int]) -> Counter[int]:
    """Return the copies that were written after the offset of their record had been saved."""
    late: Counter[int] = Counter()
    for role in (SINK, DEAD):
        for run in history.reads.get((reader, role), ()):
            if run.stream == stream:
                for number in copies.keys() & set(range(run.first, run.first + run.records)):
                    written = _written_after(history, (role, run.partition), run.offset + number - run.first)
                    late[number] += history.saved_at(stream, number) <= written
    return late & copies


def _written_after(history: History, place: tuple[str, int], offset: int) -> float:
    """Return a moment before the record at this offset was written: the start of a look that did not see it yet."""
    marks = history.marks.get(place, ())
    look = bisect_right(marks, offset, key=lambda mark: mark.high) - 1
    return marks[look - 1].at if look > 0 else 0.0


def reordered(history: History) -> Iterator[Found]:
    """Find lines whose first occurrence comes after a later line of their stream."""
    for reader in history.readers:
        for role in (SINK, DEAD):
            for stream, numbers in history.seen(reader, role).items():
                firsts = numbers[np.sort(np.unique(numbers, return_index=True)[1])]
                late = firsts[firsts < np.maximum.accumulate(firsts)]
                yield len(late), f"{reader}: {role}: stream {stream}: {_ranges(late)}"


def aborted_read(history: History) -> Iterator[Found]:
    """Find lines in the output that their writer aborted (Adya's G1a)."""
    for reader in history.readers:
        for role in (SINK, DEAD):
            for stream, numbers in history.seen(reader, role).items():
                wrong = np.intersect1d(numbers, history.expected("aborted", stream))
                yield len(wrong), f"{reader}: {role}: stream {stream}: {_ranges(wrong)}"


def phantom(history: History) -> Iterator[Found]:
    """Find lines in the output that nobody wrote."""
    for reader in history.readers:
        for role in (SINK, DEAD):
            for stream, numbers in history.seen(reader, role).items():
                planted = np.array([number for each, number in history.planted if each == stream], np.int64)
                written = [history.expected(each, stream) for each in ("ok", "aborted", "unknown")]
                foreign = np.setdiff1d(numbers, np.concatenate([planted, *written]))
                yield len(foreign), f"{reader}: {role}: stream {stream}: {_ranges(foreign)}"


def misplaced(history: History) -> Iterator[Found]:
    """Find lines in the wrong topic, and lines with the wrong content."""
    for reader in history.readers:
        for stream, numbers in history.seen(reader, SINK).items():
            wrong = np.intersect1d(numbers, joined(history.bad[stream]))
            yield len(wrong), f"{reader}: bad in the sink: stream {stream}: {_ranges(wrong)}"
        for stream, numbers in history.seen(reader, DEAD).items():
            wrong = np.setdiff1d(numbers, joined([*history.bad[stream], *history.either[stream]]))
            yield len(wrong), f"{reader}: good among the dead letters: stream {stream}: {_ranges(wrong)}"
        yield from ((1, f"{reader}: {what}") for what in history.altered[reader])


def torn(history: History) -> Iterator[Found]:
    """Find transactions of which a reader got only some records; the last record of each holds the full count."""
    if history.may_double:
        return
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


def zombie(history: History) -> Iterator[Found]:
    """Find records of a stopped worker that readers got after the first one of its successor."""
    zombies = {successor: zombie for zombie, successor in history.successors.items()}
    for (reader, role), runs in history.reads.items():
        stopped: set[str] = set()
        for run in runs:
            owner = run.transaction[: run.transaction.rfind(".") + 1]
            if owner in zombies:
                stopped.add(zombies[owner])
            elif owner in stopped:
                yield run.records, f"{reader}: {role}-{run.partition}@{run.offset}: {run.transaction}"


def moved_back(history: History) -> Iterator[Found]:
    """Find committed offsets of the group that decreased, although no operator has set them."""
    for partition, offsets in history.committed.items():
        resets = [at for at, which in history.resets if which == partition]
        for (since, before), (at, after) in pairwise(offsets):
            if after < before and not any(since - RESET_SECONDS <= reset <= at for reset in resets):
                yield 1, f"partition {partition}: from {before} to {after} at {at:.1f} s"


def read_twice(history: History) -> Iterator[Found]:
    """Find offsets that a reader got although its position was already higher."""
    for (reader, role), runs in history.reads.items():
        position: dict[int, int] = defaultdict(int)
        for run in runs:
            if run.offset < position[run.partition]:
                yield 1, f"{reader}: {role}-{run.partition}: {run.offset} after {position[run.partition] - 1}"
            position[run.partition] = run.offset + run.records


def differing(history: History) -> Iterator[Found]:
    """Find offsets at which two readers got different lines, or the same line in different records."""
    for place in history.read_places:
        got = {reader: history.lines_at(reader, *place) for reader in history.readers}
        for one, other in combinations(got, 2):
            mine, theirs = got[one], got[other]
            _, here, there = np.intersect1d(mine[0], theirs[0], return_indices=True)
            wrong = mine[0][here][(mine[1:, here] != theirs[1:, there]).any(axis=0)]
            hashes = history.hashes[one, *place], history.hashes[other, *place]
            changed = [at for at in hashes[0].keys() & hashes[1].keys() if hashes[0][at] != hashes[1][at]]
            where = f"{one}, {other}: {_at(place)}"
            yield len(wrong), f"{where}: {_ranges(wrong)}"
            yield len(changed), f"{where}: same line in another record: {_ranges(np.array(changed, np.int64))}"


def skipped(history: History) -> Iterator[Found]:
    """Find offsets that a reader did not get, although it got later ones and another reader got a record there."""
    for place in history.read_places:
        got = {reader: history.lines_at(reader, *place)[0] for reader in history.readers}
        all_of_them = np.unique(np.concatenate(list(got.values())))
        for reader, offsets in got.items():
            passed = all_of_them[all_of_them <= offsets.max(initial=-1)]
            missing = np.setdiff1d(passed, offsets)
            yield len(missing), f"{reader}: {_at(place)}: {_ranges(missing)}"


def _at(place: tuple[str, int]) -> str:
    role, partition = place
    return f"{role}-{partition}"


def left_open(history: History) -> Iterator[Found]:
    """Find partitions that readers cannot read to the end after the service has stopped."""
    for role, partition, stable, high in history.final:
        if stable < high:
            yield 1, f"{role}-{partition}: readable up to {stable} of {high}"


def silent(history: History) -> Iterator[Found]:
    """Find faults that a person must know of, and that the log did not report while they lasted."""
    for fault in history.faults:
        if fault.told and telling(history, fault) is None:
            yield 1, f"{fault.name} ({fault.target}): nothing said matches {fault.told!r}"


def telling(history: History, fault: Fault) -> Said | None:
    """Return the first line of the log that tells a fault while it lasts; None if nothing needs to be told."""
    until = fault.until + HEARD_SECONDS
    lines = (said for said in history.said if fault.told and fault.began <= said.at <= until)
    return next((said for said in lines if re.search(fault.told, said.text)), None)


def held_up(history: History) -> Iterator[Found]:
    """Find faults during which readers of the other partitions waited too long, after the brokers' own elections."""
    for pause in pauses(history):
        if pause.settled > HELD_UP_SECONDS:
            yield 1, f"{pause.fault.name}: {pause.settled:.1f} s"


def disagree(history: History) -> Iterator[Found]:
    """Find where the verdict of `winnow audit` is not that of this checker, by what the last reader got."""
    if (audit := history.audit) is None:
        return
    if not audit.counts:
        yield 1, f"winnow audit ended with {audit.code}: {audit.words}"
    elif (cut := sum(len(history.cut(stream)) for stream in history.streams)) and audit.counts["lost"] == 0:
        wrong = sum(audit.counts.values())
        if wrong > 2 * cut:  # its line has no record now, and its dead letter names another one
            yield 1, f"{wrong} findings of the audit, where Kafka has cut {cut} records"
    else:
        for what, (least, most) in _of_the_audit(history).items():
            found = sum(audit.counts.get(each, 0) for each in what.split("+"))
            if not least <= found <= most:
                yield 1, f"{what}: {found} by the audit, {least} by the checker"


def _of_the_audit(history: History) -> dict[str, tuple[float, float]]:
    """Return how many findings of each kind the audit must have, at least and at most."""
    last = replace(history, reads={each: runs for each, runs in history.reads.items() if each[0] == LAST_READER})
    missing = _total(lost(last))
    unknown = sum(len(history.expected("unknown", stream)) for stream in history.streams)
    copies = sum(each.total() for each in _copies(last, LAST_READER).values())
    late = _total(each for each in reordered(last) if f": {SINK}: " in each[1])
    strange = _total(chain(phantom(replace(last, planted=Counter())), aborted_read(last)))
    altered = _total(misplaced(last))
    return {
        "lost": (missing if history.drained else 0, missing + unknown),  # it judges only what is done
        "doubled+both": (copies, copies),
        "changed": (altered, altered),
        "out_of_order": (late, math.inf if late else 0),  # it also compares the two streams of a partition
        "unexplained": (strange, strange),
        "not_judged": (0, 0),
    }


def _total(found: Iterator[Found]) -> int:
    return sum(count for count, _ in found)


def harmed_nobody(history: History) -> Iterator[Found]:
    """Find kinds of faults none of which met anybody; single ones may, for on a busy machine nobody may be there."""
    for name, times in Counter(fault.name for fault in history.faults).items():
        if history.missed[name] >= times:
            yield times, name


def unfinished(history: History) -> Iterator[Found]:
    """Find that nobody looked: then no other anomaly can be found, either."""
    if not history.final:
        yield 1, "the last offsets are not recorded"
    if not any(runs for (reader, _), runs in history.reads.items() if reader == LAST_READER):
        yield 1, "the last reader got nothing"


def _by_the_nemesis(_history: History) -> Iterator[Found]:
    """Find nothing: what only the nemesis can see is in the history."""
    yield from ()


ANOMALIES: Mapping[str, Callable[[History], Iterator[Found]]] = {
    "lost": lost,
    "duplicated": duplicated,
    "reordered": reordered,
    "aborted read": aborted_read,
    "phantom": phantom,
    "misplaced": misplaced,
    "torn transaction": torn,
    "zombie record": zombie,
    "offset moved back": moved_back,
    "offset read twice": read_twice,
    "readers differ": differing,
    "skipped": skipped,
    "open transaction": left_open,
    "silent": silent,
    "held up": held_up,
    "disagree": disagree,
    "harmed nobody": harmed_nobody,
    "unfinished": unfinished,
    **dict.fromkeys(
        ("stuck", "came back", "not paused", "went on", "crashed", "displaced", "unknown"), _by_the_nemesis
    ),
}


def judge(history: History) -> list[Finding]:
    """Return a finding for every kind of anomaly; one that was not found has `times` 0."""
    return [_finding(name, chain(find(history), _seen(history, name))) for name, find in ANOMALIES.items()]


def _seen(history: History, anomaly: str) -> Iterator[Found]:
    """Yield the anomalies of this name that the nemesis has seen."""
    for each in history.seen_by_nemesis:
        if each.anomaly == anomaly:
            yield 1, f"{each.what} at {each.at:.1f} s"


def _finding(name: str, found: Iterator[Found]) -> Finding:
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
