"""`winnow audit`: chooses what to compare, and reads it with read_committed readers of its own. Changes nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from app.config import Config
from app.cures import KafkaTools
from app.driver.clients import Clients, Topics
from app.driver.task_config import task_config
from app.errors import NotAllowed, NotUsable
from app.model import NOBODY, Destination, Partition, Partitioner, TaskConfig
from app.operate.judging import Judge, Log, Verdict
from app.operate.lag import FirstRecords, PartitionLag, offsets_of
from app.operate.matching import Matching
from app.operate.ranges import Asked, LeftOut, Range, Routing, newest, packed, ranges, sampled, together
from app.operate.reading import Cleanse, Reader, Span, read, span_between, whole
from app.records import Record

STABLE_SECONDS, LOOK_SECONDS = 30.0, 0.2
MOST = 10_000_000
"""How many records are compared together, in about 0.6 GB of memory."""
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

        Raises WinnowError if more is wrong than fits in memory.
        """
        matching = Matching(judged, self.routing, self.times, sources)
        for records in self._source_records({each: found.known for each, found in judged.items()}):
            matching.expect(self.cleanse.of(records))
        matching.expected.seal()
        logs = self._match(matching)
        starts = {each: marks.log_start for each, marks in self.readers.sources.watermarks(sources).items()}
        judge = Judge(matching, logs, starts)
        self._examine(judge, matching)
        if judge.times:
            self._explain(judge, matching)
        return judge.verdict()

    def _source_records(self, spans: Mapping[Partition, Sequence[Span]]) -> Iterator[list[Record]]:
        """Yield the records of each partition's spans, reading all partitions in parallel."""
        advance = self.step("reading the source", sum(span.length for of_one in spans.values() for span in of_one))
        for number in range(max(map(len, spans.values()), default=0)):
            now = {each: of_one[number] for each, of_one in spans.items() if number < len(of_one)}
            yield from read(self.readers.source, now, advance)

    def _match(self, matching: Matching) -> dict[Partition, Log]:
        """Read the output that may belong to the range; return the state of its partitions."""
        (early_letters, letters), (early_lines, lines) = (
            self._spans(of, matching) for of in (self.routing.letters, self.routing.lines)
        )
        self._take(letters, matching.letter)
        # A dead letter may be older than its source record, and so may any record if the broker sets the timestamp.
        if early := matching.lacks_letters:
            self._take(early_letters, matching.letter)
        self._take(lines, matching.line)
        if matching.lacks_lines and self.routing.sink.append_time:
            self._take(early_lines, matching.line)
        if matching.lacks_lines and not early:
            self._take(early_letters, matching.letter)
        older = {each: bool(span.length) for each, span in (early_letters | early_lines).items()}
        marks = self.readers.destinations.watermarks(older)
        return {each: Log(marks[each].log_start, self.ends[each].stable, older[each]) for each in marks}

    def _spans(
        self, of: Callable[[Partition], list[Partition]], matching: Matching
    ) -> tuple[dict[Partition, Span], dict[Partition, Span]]:
        """Return two spans of each output partition: what is older than all records of the range, and the rest."""
        destinations = self.readers.destinations
        places = sorted({place for source in matching.sources for place in of(source)})
        ends = {each: self.ends[each].offset for each in places if each in self.ends}
        begins = {each: min(marks.log_start, ends[each]) for each, marks in destinations.watermarks(ends).items()}
        # A range without records has no known time, and no lines.
        found = {} if matching.oldest is None else destinations.offsets_at(begins, matching.oldest)
        middles = {each: ends[each] if at is None else min(at, ends[each]) for each, at in found.items()}
        early = {each: Span(begins[each], middle) for each, middle in middles.items()}
        return early, {each: Span(middle, ends[each]) for each, middle in middles.items()}

    def _take(self, spans: Mapping[Partition, Span], take: Callable[[Record], object]) -> None:
        advance = self.step("comparing the output", sum(each.length for each in spans.values()))
        for records in read(self.readers.output, spans, advance):
            for record in records:
                take(record)

    def _examine(self, judge: Judge, matching: Matching) -> None:
        """Read again the records that may lack their output, and the lines that may have replaced it."""
        for records in self._source_records({each: [span] for each, span in judge.wanted.items()}):
            for fate in self.cleanse.of(list(filter(judge.wants, records))):
                judge.examine(fate)
        if judge.lines_wanted:
            _, lines = self._spans(self.routing.lines, matching)
            self._take(lines, judge.look_at)

    def _explain(self, judge: Judge, matching: Matching) -> None:
        """Look for records outside the range that explain surplus lines."""
        sources, judged = matching.sources, matching.ranges
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


def refuse_unknown(topics: Iterable[Destination], tools: KafkaTools) -> None:
    """Raise NotAllowed if a topic's settings cannot be read: whose times its records have, and what it deletes."""
    for topic in topics:
        if not topic.known:
            cause = f"Winnow lacks DescribeConfigs on topic {topic.topic!r}, which an audit needs"
            raise NotAllowed(cause, tools.allow(["DescribeConfigs"], f"--topic {topic.topic}"))


def refuse_lost_times(routing: Routing) -> None:
    """Raise NotUsable if lines have neither their record's timestamp nor a header that names it."""
    if routing.sink.append_time and not routing.lineage:
        lack = "so its lines lack their records' timestamps, by which an audit matches them"
        cause = f"the sink {routing.sink.topic!r} has message.timestamp.type LogAppendTime, {lack}"
        raise NotUsable(cause, "set lineage.headers to true, and audit lines written from then on")


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


def unlimited(tasks: TaskConfig) -> TaskConfig:
    """Return the service's tasks without the topics' limits: a topic may have taken then what it would refuse now."""
    sink, dead_letters = (
        replace(each, max_bytes=2**31 - 1, compacted=False, before=None, after=None)
        for each in (tasks.sink, tasks.dead_letters)
    )
    return replace(tasks, sink=sink, dead_letters=dead_letters)


class Scope(NamedTuple):
    """What to audit of all the sources, and what was looked up to choose it."""

    tasks: TaskConfig
    routing: Routing
    found: Sequence[PartitionLag]
    """The source partitions; their committed offsets were read before `ends`, so their output is below these."""
    topics: Sequence[Destination]
    ends: Mapping[Partition, End]
    judged: Mapping[Partition, Range] = {}
    left_out: Sequence[LeftOut] = ()
    times: tuple[int, float] | None = None
    """Every line with a timestamp between these must have a record; None in a sample."""
    since: int = 0
    """No judged record is older, in milliseconds since the epoch."""

    @classmethod
    def survey(cls, settings: Config, kafka: Clients) -> Scope:
        """Look at Kafka; raise NotUsable if lines cannot be matched with their records, or too little is known."""
        tasks, found = task_config(settings, kafka.destinations, NOBODY), offsets_of(settings, kafka)
        topics = [kafka.topics.destination(name) for name in sorted({each.partition.topic for each in found})]
        by_key, compacted = tasks.sink_partitioner is Partitioner.KEY, any(each.compacted for each in topics)
        now = round(time.time() * 1000)
        routing = Routing(tasks.sink, tasks.dead_letters, by_key, tasks.lineage, compacted, now)
        outputs = (tasks.sink, tasks.dead_letters)
        refuse_unknown(topics, KafkaTools.of(settings.kafka))
        refuse_unknown(outputs, KafkaTools.of(settings.output_kafka))
        refuse_lost_times(routing)
        written = [Partition(each.topic, number) for each in outputs for number in range(each.partitions)]
        return cls(unlimited(tasks), routing, found, topics, stable_ends(kafka.destinations, written))

    @classmethod
    def of(cls, settings: Config, kafka: Clients, since: int, until: int | None, sample: float | None) -> Scope:
        """
        Return what to audit between two times: at most what was committed before the sink's ends are read.

        `sample` is the percentage of the records to judge, None for all. Raises NotUsable as `survey`.
        """
        scope = cls.survey(settings, kafka)
        led, now = scope.led, round(time.time() * 1000)
        asked = Asked(
            since,
            until,
            kafka.topics.offsets_at(led, since),
            {} if until is None else kafka.topics.offsets_at(led, until),
            kafka.topics.offsets_at(led, 0),
            {each.topic: None if each.retention is None else now - each.retention for each in scope.topics},
        )
        judged, left_out = ranges(scope.found, kafka.offsets.load(led, stable=False), asked)
        times = (since, math.inf if until is None else until) if sample is None else None
        judged = judged if sample is None else sampled(judged, sample)
        return scope._replace(judged=judged, left_out=left_out, times=times, since=since)

    @classmethod
    def newest(cls, settings: Config, kafka: Clients, first_lines: FirstRecords, most: int) -> Scope:
        """
        Return the newest committed records of each partition, at most this many and only if their output is near.

        `first_lines` reads the sink's cluster. Raises NotUsable as `survey`; Unreachable if a partition of the sink or
        of the dead letters does not answer.
        """
        scope = cls.survey(settings, kafka)
        marks, led = whole(scope.ends, kafka.destinations.watermarks(scope.ends)), scope.led
        # After `since` each output partition has DEPTH records at most, however old those of an idle source are.
        depths = {each: end.offset - DEPTH for each, end in scope.ends.items()}
        deep = {each: depth for each, depth in depths.items() if depth > marks[each].log_start}
        times = whole(deep, first_lines.times(deep)).values()
        since = max((each for each in times if each is not None), default=0)
        begins, later = kafka.topics.offsets_at(led, since), kafka.offsets.load(led, stable=False)
        judged, left_out = newest(scope.found, later, begins, most)
        return scope._replace(judged=judged, left_out=left_out, since=since)

    @property
    def led(self) -> list[Partition]:
        """The source partitions with a leader."""
        return [each.partition for each in self.found if each.watermarks is not None]

    def audit(self, cleanse: Cleanse, readers: Readers, step: Step = no_step) -> list[Verdict]:
        """Compare the source with the output. Raises ConfigError if that takes too much memory; see `Auditor`."""
        auditor = Auditor(cleanse, readers, self.routing, self.ends, self.times, step)
        groups = together(self.routing, [each.partition for each in self.found])
        sizes = {each: found.read for each, found in self.judged.items()}
        return [
            auditor.compare(sources, {each: self.judged[each] for each in sources if each in self.judged})
            for sources in packed([each for each in groups if sizes.keys() & each], sizes, MOST)
        ]
