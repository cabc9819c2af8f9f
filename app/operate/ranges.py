"""Chooses what `winnow audit` judges: ranges of source partitions, samples of them, and what to leave out and why."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from app.errors import ConfigError
from app.model import CommittedOffset, Destination, Partition, Watermarks
from app.operate.lag import PartitionLag
from app.operate.reading import FirstOffsets, Offsets, Span, span_between

MARGIN = 2_000
"""How many more records are read on each side of the judged ones: their lines may be in between."""
WINDOWS = 100
"""The number of windows of a range, some of which are the sample."""


class Why(StrEnum):
    """Why something of the range cannot be judged."""

    NO_LEADER = "no leader"
    NO_OFFSET = "no offset"
    OTHER_LOG = "another log"
    NOT_DONE = "not done"
    BEFORE_GROUP = "before the group"
    EXPIRED = "expired"
    COMPACTED = "compacted"
    OPEN = "open transaction"
    UNNAMED = "unnamed"
    TOO_MANY = "too many"


CURES = {
    Why.NO_LEADER: "audit again when its broker is back",
    Why.NO_OFFSET: "make sure that group.id and offsets.store are the service's; the store `none` keeps no offset",
    Why.OTHER_LOG: "see `winnow lag`, and audit again when the service reads the partition",
    Why.NOT_DONE: "audit again when `winnow lag` shows that the service has caught up",
    Why.OPEN: "see `winnow transactions ls`",
    Why.TOO_MANY: "audit less with --to, or use --sample",
}


class LeftOut(NamedTuple):
    """A part of a source partition that is not judged, with its number of offsets at most; None if unknown."""

    why: Why
    partition: Partition
    offsets: int | None

    def as_json(self) -> dict[str, Any]:
        return {"why": self.why.value, **self.partition.as_json(), "offsets": self.offsets}


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one source partition, in ascending spans that do not overlap."""

    judged: Sequence[Span]
    known: Sequence[Span]
    """What to read for that, which extends further on each side."""
    topic_id: str = ""
    """The id of their topic; empty if the broker gives none."""

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self.judged, (offset, math.inf)) - 1
        return place >= 0 and offset < self.judged[place].end

    @property
    def end(self) -> int:
        return self.known[-1].end if self.known else 0

    @property
    def read(self) -> int:
        return sum(end - begin for begin, end in self.known)

    def rest(self, begin: int, end: int) -> Iterator[Span]:
        """Yield the unknown spans between two offsets, in order."""
        for known in self.known:
            if begin < min(known.begin, end):
                yield Span(begin, min(known.begin, end))
            begin = max(begin, known.end)
        if begin < end:
            yield Span(begin, end)


Chosen = tuple[dict[Partition, Range], list[LeftOut]]
"""The range to judge of each source partition, and what must be left out."""


class Asked(NamedTuple):
    """The times to audit in milliseconds, the last one perhaps open, and Kafka's answers about them."""

    since: int
    until: int | None
    begins: FirstOffsets
    """At or after `since`."""
    ends: FirstOffsets
    """At or after `until`; empty without one."""
    first: FirstOffsets
    """Of all."""
    deleted_before: Mapping[str, int | None] = {}
    """By topic, a time that all records deleted by retention are older than; None if unknown."""


def ranges(found: Collection[PartitionLag], later: Offsets, asked: Asked) -> Chosen:
    """Choose what is done by the committed offsets in `found`; `later` has those read after the ends of the sink."""
    judged: dict[Partition, Range] = {}
    left_out: list[LeftOut] = []
    nowhere = all(at.offset is None for at in found)
    answered = asked.begins.keys() if asked.until is None else asked.begins.keys() & asked.ends.keys()
    for at, watermarks in _readable(found, answered, left_out):
        wanted = span_between(watermarks, asked.begins.get(at.partition), asked.ends.get(at.partition))
        if at.offset is None:
            if wanted.begin < wanted.end or nowhere:
                left_out.append(LeftOut(Why.NO_OFFSET, at.partition, wanted.length))
            continue
        reached = max(at.offset, later.get(at.partition, at.committed or CommittedOffset(0)).offset)
        done, leaves = _done(at, watermarks, wanted, asked, reached)
        left_out += leaves
        known_to = reached if asked.until is None else min(reached, done.end + MARGIN)
        known = Span(max(watermarks.log_start, done.begin - MARGIN), max(done.end, known_to))
        judged[at.partition] = Range([done], [known], at.topic_id)
    return judged, left_out


def _readable(
    found: Iterable[PartitionLag], answered: Collection[Partition], left_out: list[LeftOut]
) -> Iterator[tuple[PartitionLag, Watermarks]]:
    """Yield the partitions whose log can be read, with its watermarks; add the others to `left_out`."""
    for at in found:
        if at.watermarks is None or at.partition not in answered:
            left_out.append(LeftOut(Why.NO_LEADER, at.partition, None))
        elif at.is_of_another_log:
            left_out.append(LeftOut(Why.OTHER_LOG, at.partition, None))
        else:
            yield at, at.watermarks


def _done(at: PartitionLag, marks: Watermarks, wanted: Span, asked: Asked, reached: int) -> tuple[Span, list[LeftOut]]:
    """Return what the service, which has reached this offset at least, has done of the wanted, and what is left out."""
    assert at.offset is not None  # the caller has checked
    begun, first = at.begun, asked.first.get(at.partition)
    begin = min(max(wanted.begin, begun), wanted.end)
    deleted = marks.log_start - begun if first is None or wanted.begin <= first else 0
    before = asked.deleted_before.get(at.partition.topic)
    if first is None and before is not None and asked.since >= before:  # no record has arrived since long before
        deleted = 0
    # Records behind an open transaction of the source may be that early, too.
    last = marks.high_watermark if asked.ends.get(at.partition) is None else wanted.end
    # Up to now, the end is what a working service is about to do. One that has reached nothing of it may be dead.
    undone = last - max(begin, at.offset) if asked.until is not None or reached <= begin else 0
    counts = {Why.BEFORE_GROUP: begin - wanted.begin, Why.EXPIRED: deleted, Why.NOT_DONE: undone}
    end = max(begin, min(wanted.end, at.offset))
    return Span(begin, end), [LeftOut(why, at.partition, count) for why, count in counts.items() if count > 0]


def newest(found: Collection[PartitionLag], later: Offsets, begins: FirstOffsets, most: int) -> Chosen:
    """
    Choose the last offsets that are done of each partition, at most this many and none before its begin.

    Partitions without a begin are left out. `later` was read after the ends of the output.
    """
    judged: dict[Partition, Range] = {}
    left_out: list[LeftOut] = []
    for at, watermarks in _readable(found, begins.keys(), left_out):
        first, log_start = begins[at.partition], watermarks.log_start
        if at.offset is None or first is None:
            continue
        end = min(at.offset, watermarks.last_stable)
        begin = max(first, log_start, at.begun, end - most)
        if begin < end:
            known_to = later.get(at.partition, CommittedOffset(end)).offset
            known = Span(max(log_start, begin - MARGIN), max(end, min(known_to, end + MARGIN)))
            judged[at.partition] = Range([Span(begin, end)], [known], at.topic_id)
    return judged, left_out


def sampled(whole: Mapping[Partition, Range], percent: float) -> dict[Partition, Range]:
    """Return random windows that cover this percentage of each range; the same windows for each partition."""
    windows = WINDOWS * percent / 100
    chosen = sorted(random.sample(range(WINDOWS), math.ceil(windows)))
    return {partition: _windows(each, chosen, windows / len(chosen)) for partition, each in whole.items()}


def _windows(whole: Range, chosen: Sequence[int], part: float) -> Range:
    """Return this part of each chosen window, from its beginning on."""
    ((begin, end),), ((first, last),) = whole.judged, whole.known
    cuts = [begin + (end - begin) * place // WINDOWS for place in range(WINDOWS + 1)]
    windows = (Span(cuts[each], cuts[each + 1]) for each in chosen)
    judged = [Span(each.begin, each.begin + math.ceil(each.length * part)) for each in windows if each.length]
    known: list[Span] = []
    for each in judged:
        begin, end = max(first, each.begin - MARGIN), min(last, each.end + MARGIN)
        if known and begin <= known[-1].end:
            begin = known.pop().begin
        known.append(Span(begin, end))
    return Range(judged, known, whole.topic_id)


@dataclass(frozen=True, slots=True)
class Routing:
    """Where the lines and dead letters of a source partition are."""

    sink: Destination
    dead_letters: Destination
    by_key: bool = False
    lineage: bool = False
    """Whether lines name their records. Then they may be in any partition, as there may have been fewer once."""
    compacted_source: bool = False
    """Whether at least one source topic is."""
    now: int = 0
    """When the audit began, in milliseconds since the epoch."""

    @property
    def anywhere(self) -> bool:
        return self.by_key or self.lineage

    def lines(self, source: Partition) -> list[Partition]:
        count = self.sink.partitions
        numbers = range(count) if self.anywhere else [source.number % count]
        return [Partition(self.sink.topic, number) for number in numbers]

    def letters(self, source: Partition) -> list[Partition]:
        count = self.dead_letters.partitions
        numbers = range(count) if self.lineage else [source.number % count]
        return [Partition(self.dead_letters.topic, number) for number in numbers]

    def keeps(self, topic: Destination, timestamp: int) -> bool:
        """
        Whether the topic's retention cannot have deleted the output of a record with this timestamp, in milliseconds.

        Output may have the time of writing instead, which a wrong timestamp is ahead of. So one in the future tells
        nothing, and a tenth of the retention is left for the rest, for other clocks, and for the audit to run.
        """
        return topic.retention is not None and self.now - topic.retention * 9 // 10 <= timestamp <= self.now


def together(routing: Routing, sources: Collection[Partition]) -> list[list[Partition]]:
    """Group source partitions whose lines share sink partitions, because they must be compared together."""
    found: defaultdict[tuple[Partition, ...], list[Partition]] = defaultdict(list)
    for each in sorted(sources):
        found[tuple(routing.lines(each))].append(each)
    return list(found.values())


def packed(groups: Sequence[Sequence[Partition]], sizes: Mapping[Partition, int], most: int) -> list[list[Partition]]:
    """
    Join groups while they have at most this many records, as each comparison reads the output topics again.

    Raises ConfigError if one group alone has more.
    """
    packs: list[list[Partition]] = []
    size = most
    for group in groups:
        if (more := sum(sizes.get(each, 0) for each in group)) > most:
            msg = f"{more} records share sink partitions and must be compared together, but at most {most} can be: "
            raise ConfigError((f"{msg}narrow the range with --from and --to, or use --sample",))
        if not packs or size + more > most:
            packs.append([])
            size = 0
        packs[-1] += group
        size += more
    return packs
