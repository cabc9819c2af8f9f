"""`winnow audit`: chooses what to compare, and reads it with read_committed readers of its own. Changes nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from app.config import Config
from app.driver.clients import Clients, Topics
from app.driver.task_config import task_config
from app.errors import ConfigError, NotUsable
from app.model import NOBODY, Destination, Partition, Partitioner, TaskConfig
from app.operate.judging import Judge, Log, Verdict
from app.operate.lag import FirstRecords, PartitionLag, offsets_of
from app.operate.matching import Matching
from app.operate.ranges import Asked, LeftOut, Range, Routing, distinct, newest, packed, ranges, sampled, together
from app.operate.reading import Cleanse, Reader, Span, advancing, read, span_between, whole
from app.records import Record

STABLE_SECONDS, LOOK_SECONDS = 30.0, 0.2
MOST = 10_000_000
"""How many records are compared together, in about 0.6 GB of memory."""
UNLIMITED_BYTES = 2**31 - 1
DEPTH = 20_000
"""How many records a sample of the newest reads of each output partition, as far as they are in order of time."""


Step = Callable[[str, int], Callable[[int], object]]


def no_step(_doing: str, _offsets: int) -> Callable[[int], object]:
    return lambda _done: None


class End(NamedTuple):
    """The end of a sink or dead-letter partition when the audit began, and whether all below it is settled."""

    offset: int
    stable: bool


class Readers(NamedTuple):
    """The clients of an audit; output and destinations are the sink and the dead letters."""

    source: Reader
    output: Reader
    sources: Topics
    destinations: Topics


class Bounds(NamedTuple):
    """What to read of sink or dead-letter partitions."""

    begins: Mapping[Partition, int]
    middles: Mapping[Partition, int]
    """The first offset of each with a timestamp no earlier than the range's records."""
    ends: Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class Auditor:
    """
    Compares source partitions with their output; see `Scope`.

    `ends` has the output partitions with a leader. `step` begins a part of the work: it receives what that is and how
    many offsets it has, and returns what receives how many are done.
    """

    cleanse: Cleanse
    readers: Readers
    routing: Routing
    ends: Mapping[Partition, End]
    times: tuple[int, float] | None
    step: Step = no_step

    def compare(self, sources: Collection[Partition], judged: Mapping[Partition, Range]) -> Verdict:
        """
        Compare the ranges of source partitions that share sink partitions; not all of them need have one.

        Raises:
            WinnowError: more is wrong than fits in memory.
        """
        matching = Matching(judged, self.routing, self.times, sources)
        for records in self._source_records({each: found.known for each, found in judged.items()}):
            matching.expect(self.cleanse.of(records))
        matching.expected.seal()
        logs = self._match(matching, sources)
        starts = {each: marks.log_start for each, marks in self.readers.sources.watermarks(sources).items()}
        judge = Judge(matching, logs, starts, sources)
        self._examine(judge, sources, matching)
        if judge.times:
            self._explain(judge, judged, sources)
        return judge.verdict()

    def _source_records(self, spans: Mapping[Partition, Sequence[Span]]) -> Iterator[list[Record]]:
        """Yield the records of each partition's spans, reading all partitions in parallel."""
        advance = self.step("reading the source", sum(span.length for of_one in spans.values() for span in of_one))
        for number in range(max(map(len, spans.values()), default=0)):
            now = {each: of_one[number] for each, of_one in spans.items() if number < len(of_one)}
            yield from advancing(read(self.readers.source, now), now, advance)

    def _match(self, matching: Matching, sources: Collection[Partition]) -> dict[Partition, Log]:
        """Read the output that may belong to the range; return the state of its partitions."""
        letters, lines = (
            self._bounds(distinct(map(of, sources)), matching) for of in (self.routing.letters, self.routing.lines)
        )
        self._take(letters.middles, letters.ends, matching.letter)
        # A dead letter may be older than its source record, and so may any record if the broker sets the timestamp.
        if early := matching.lacks_letters:
            self._take(letters.begins, letters.middles, matching.letter)
        self._take(lines.middles, lines.ends, matching.line)
        if matching.lacks_lines and self.routing.sink.append_time:
            self._take(lines.begins, lines.middles, matching.line)
        if matching.lacks_lines and not early:
            self._take(letters.begins, letters.middles, matching.letter)
        older = {each: part.begins[each] < middle for part in (letters, lines) for each, middle in part.middles.items()}
        marks = self.readers.destinations.watermarks(older)
        return {each: Log(marks[each].log_start, self.ends[each].stable, older[each]) for each in marks}

    def _bounds(self, partitions: Collection[Partition], matching: Matching) -> Bounds:
        destinations = self.readers.destinations
        ends = {each: self.ends[each].offset for each in partitions if each in self.ends}
        begins = {each: min(marks.log_start, ends[each]) for each, marks in destinations.watermarks(ends).items()}
        # A range without records has no known time, and no lines.
        found = {} if matching.oldest is None else destinations.offsets_at(begins, matching.oldest)
        middles = {each: ends[each] if at is None else min(at, ends[each]) for each, at in found.items()}
        return Bounds(begins, middles, ends)

    def _take(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int], take: Callable[[Record], object]
    ) -> None:
        spans = {each: Span(start, ends[each]) for each, start in starts.items() if each in ends}
        advance = self.step("comparing the output", sum(each.length for each in spans.values()))
        for records in advancing(read(self.readers.output, spans), spans, advance):
            for record in records:
                take(record)

    def _examine(self, judge: Judge, sources: Collection[Partition], matching: Matching) -> None:
        """Read again the records that may lack their output, and the lines that may have replaced it."""
        for records in self._source_records({each: [span] for each, span in judge.wanted.items()}):
            for fate in self.cleanse.of(list(filter(judge.wants, records))):
                judge.examine(fate)
        if judge.lines_wanted:
            lines = self._bounds(distinct(map(self.routing.lines, sources)), matching)
            self._take(lines.middles, lines.ends, judge.look_at)

    def _explain(self, judge: Judge, judged: Mapping[Partition, Range], sources: Collection[Partition]) -> None:
        """Look for records outside the range that explain surplus lines."""
        times = None if self.routing.sink.append_time else judge.times  # append times are not the records' times
        since = min(times) if times else 0
        begins = self.readers.sources.offsets_at(sources, since)
        first = self.readers.sources.offsets_at(sources, 0)
        marks = self.readers.sources.watermarks(sources)
        judge.read_whole = {each for each, begin in begins.items() if begin == first.get(each)}
        spans = {}
        for each, of_one in marks.items():
            begin, end = span_between(of_one, begins.get(each), None)
            spans[each] = list(judged[each].rest(begin, end)) if each in judged else [Span(begin, end)]
        for records in self._source_records(spans):
            chosen = [each for each in records if times is None or each.timestamp in times]
            if not all(map(judge.explain, self.cleanse.of(chosen))):
                return


def refuse_lost_times(routing: Routing) -> None:
    """
    Check that lines can be matched with their records.

    Raises:
        NotUsable: lines have neither their record's timestamp nor a header that names it.
    """
    if routing.sink.append_time and not routing.lineage:
        cause = (
            f"the sink {routing.sink.topic!r} has message.timestamp.type LogAppendTime, so its lines lack their "
            "records' timestamps, by which an audit matches them"
        )
        cure = "set lineage.headers to true, and audit lines written from then on"
        raise NotUsable(cause, cure)


def stable_ends(
    destinations: Topics, partitions: Collection[Partition], sleep: Callable[[float], object] = time.sleep
) -> dict[Partition, End]:
    """
    Wait until everything now in the partitions is committed or aborted, and return where each ends.

    An offset may be committed a moment before the lines of its transaction become readable. A partition without a
    leader is left out; one with a transaction that stays open ends before it.
    """
    wanted = {each: marks.high_watermark for each, marks in destinations.watermarks(partitions).items()}
    now = destinations.watermarks(wanted)
    for _ in range(round(STABLE_SECONDS / LOOK_SECONDS)):
        if all(each in now and now[each].last_stable >= end for each, end in wanted.items()):
            break
        sleep(LOOK_SECONDS)
        now = destinations.watermarks(wanted)
    return {
        each: End(min(wanted[each], marks.last_stable), marks.last_stable >= wanted[each])
        for each, marks in now.items()
    }


def newest_time(ends: Mapping[Partition, End], destinations: Topics, first_lines: FirstRecords) -> int:
    """
    Return a time, in milliseconds, after which each output partition holds at most DEPTH records.

    So a sample never reads more of the output, however old the newest records of an idle source partition are.
    """
    marks = whole(ends, destinations.watermarks(ends))
    deep = {each: end.offset - DEPTH for each, end in ends.items() if end.offset - DEPTH > marks[each].log_start}
    times = whole(deep, first_lines.times(deep))
    return max((each for each in times.values() if each is not None), default=0)


@dataclass(frozen=True, slots=True)
class Survey:
    """
    What an audit looks up before it chooses its range.

    The committed offsets in `found` were read before `ends`, so their output is below these.
    """

    tasks: TaskConfig
    routing: Routing
    found: Sequence[PartitionLag]
    topics: Sequence[Destination]
    ends: Mapping[Partition, End]

    @classmethod
    def of(cls, settings: Config, kafka: Clients) -> Survey:
        """Look at Kafka; raise NotUsable if lines cannot be matched with their records."""
        tasks, found = task_config(settings, kafka.destinations, NOBODY), offsets_of(settings, kafka)
        topics = [kafka.topics.destination(name) for name in sorted({each.partition.topic for each in found})]
        by_key, compacted = tasks.sink_partitioner is Partitioner.KEY, any(each.compacted for each in topics)
        now = round(time.time() * 1000)
        routing = Routing(tasks.sink, tasks.dead_letters, by_key, tasks.lineage, compacted, now)
        refuse_lost_times(routing)
        outputs = (tasks.sink, tasks.dead_letters)
        written = [Partition(each.topic, number) for each in outputs for number in range(each.partitions)]
        return cls(tasks, routing, found, topics, stable_ends(kafka.destinations, written))

    @property
    def led(self) -> list[Partition]:
        """The source partitions with a leader."""
        return [each.partition for each in self.found if each.watermarks is not None]

    def scope(
        self, judged: Mapping[Partition, Range], left_out: Sequence[LeftOut], times: tuple[int, float] | None
    ) -> Scope:
        sink, dead_letters = (
            replace(each, max_bytes=UNLIMITED_BYTES, compacted=False, before=None, after=None)
            for each in (self.tasks.sink, self.tasks.dead_letters)
        )
        unlimited = replace(self.tasks, sink=sink, dead_letters=dead_letters)
        sources = [each.partition for each in self.found]
        return Scope(unlimited, self.routing, sources, judged, left_out, self.ends, times)


class Scope(NamedTuple):
    """What to audit of all the sources."""

    tasks: TaskConfig
    """The service's, without the topics' limits: a topic may have taken then what it would refuse now."""
    routing: Routing
    sources: Sequence[Partition]
    judged: Mapping[Partition, Range]
    left_out: Sequence[LeftOut]
    ends: Mapping[Partition, End]
    times: tuple[int, float] | None
    """Every line with a timestamp between these must have a record; None in a sample."""
    since: int = 0
    """No judged record is older, in milliseconds since the epoch."""

    @classmethod
    def of(cls, settings: Config, kafka: Clients, since: int, until: int | None, sample: float | None) -> Scope:
        """
        Return what to audit between two times: at most what was committed before the sink's ends are read.

        Args:
            sample: the percentage of the records to judge; None for all.

        Raises:
            NotUsable: lines cannot be matched with their records.
        """
        survey = Survey.of(settings, kafka)
        led, now = survey.led, round(time.time() * 1000)
        asked = Asked(
            since,
            until,
            kafka.topics.offsets_at(led, since),
            {} if until is None else kafka.topics.offsets_at(led, until),
            kafka.topics.offsets_at(led, 0),
            {each.topic: None if each.retention is None else now - each.retention for each in survey.topics},
        )
        judged, left_out = ranges(survey.found, kafka.offsets.load(led, stable=False), asked)
        times = (since, math.inf if until is None else until) if sample is None else None
        judged = judged if sample is None else sampled(judged, sample)
        return survey.scope(judged, left_out, times)._replace(since=since)

    @classmethod
    def newest(cls, settings: Config, kafka: Clients, first_lines: FirstRecords, most: int) -> Scope:
        """
        Return the newest committed records of each partition, at most this many and only if their output is near.

        Args:
            first_lines: reads the sink's cluster.

        Raises:
            NotUsable: lines cannot be matched with their records.
            Unreachable: a partition of the sink or of the dead letters does not answer.
        """
        survey = Survey.of(settings, kafka)
        since = newest_time(survey.ends, kafka.destinations, first_lines)
        led = survey.led
        begins, later = kafka.topics.offsets_at(led, since), kafka.offsets.load(led, stable=False)
        judged, left_out = newest(survey.found, later, begins, most)
        return survey.scope(judged, left_out, None)._replace(since=since)

    @property
    def length(self) -> int:
        """How many offsets are judged."""
        return sum(each.offsets for each in self.judged.values())

    def audit(self, cleanse: Cleanse, readers: Readers, step: Step = no_step) -> list[Verdict]:
        """Compare the source with the output. Raises ConfigError if that takes too much memory; see `Auditor`."""
        auditor = Auditor(cleanse, readers, self.routing, self.ends, self.times, step)
        return [
            auditor.compare(sources, {each: self.judged[each] for each in sources if each in self.judged})
            for sources in self._packs()
        ]

    def _packs(self) -> list[list[Partition]]:
        sizes = {each: found.read for each, found in self.judged.items()}
        groups = [each for each in together(self.routing, self.sources) if self.judged.keys() & each]
        for group in groups:
            if (size := sum(sizes.get(each, 0) for each in group)) > MOST:
                msg = f"{size} records share sink partitions and must be compared together, but at most {MOST} can be: "
                raise ConfigError((f"{msg}narrow the range with --from and --to, or use --sample",))
        return packed(groups, sizes, MOST)
