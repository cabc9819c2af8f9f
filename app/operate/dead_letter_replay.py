"""
Cleanses dead letters again with the current parser and options, for `winnow dlq replay`.

A ledger records, by original topic, partition and offset, what replays have done with each record, so that none
repeats it. What fails again goes back to the dead letters with a count, and from a certain count on to a parking topic.
Lines, dead letters, ledger entries and the replay's position are written in one transaction.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, NamedTuple, Protocol

from app.config import Config
from app.cures import KafkaTools
from app.driver.clients import Clients
from app.driver.task_config import task_config
from app.errors import NotUsable, Refused
from app.headers import REPLAYS, SOURCE, TOPIC_ID
from app.model import NOBODY, CommittedOffset, Partition, TaskConfig
from app.operate.dead_letters import DeadLetterReader, Letter, Selection
from app.operate.ledger import Remainder, ReplayLedger, Waiting
from app.operate.reading import Cleanse, Offsets, Reader, Span, read, whole
from app.operate.replay import refuse_own_topics
from app.records import Fate, OutgoingRecord, Record
from app.topics import LEDGER, PARKING, OwnTopics

GROUP = "{}.dlq-replay"
"""The group whose offsets are the positions of replays; their transactional ids contain its name."""
STEP = 1_000
"""The most dead letters per transaction."""


@dataclass(slots=True)
class Tally:
    """A replay's counts: reasons then and now, and what it left alone."""

    then: Counter[str] = field(default_factory=Counter)
    now: Counter[str] = field(default_factory=Counter)
    cleansed: int = 0
    filtered: int = 0
    """Dropped by a filter: they go nowhere, and are not replayed again."""
    parked: int = 0
    handled: int = 0
    """Handled by an earlier replay."""
    not_chosen: int = 0
    not_replayable: int = 0
    """The origin is unknown, or the value was cut."""
    hidden: int = 0
    """How many offsets wait behind an open transaction; a later replay reads them."""

    @property
    def failed(self) -> int:
        return self.now.total()

    @property
    def replayed(self) -> int:
        return self.cleansed + self.filtered + self.failed

    def rows(self) -> list[tuple[str, int, int]]:
        reasons = dict.fromkeys(reason for counts in (self.then, self.now) for reason, _ in counts.most_common())
        return [(reason, self.then[reason], self.now[reason]) for reason in reasons]

    def as_json(self) -> dict[str, Any]:
        return {
            "replayed": self.replayed,
            "cleansed": self.cleansed,
            "filtered": self.filtered,
            "failed_again": self.failed,
            "parked": self.parked,
            "handled_before": self.handled,
            "not_chosen": self.not_chosen,
            "not_replayable": self.not_replayable,
            "hidden": self.hidden,
            "then": dict(self.then),
            "now": dict(self.now),
        }


class PartitionWriter(Protocol):
    """Writes for one partition of the dead letters, exactly once; see `app.kafka.dead_letter_replay`."""

    def commit(self, records: Sequence[tuple[Partition, OutgoingRecord]], position: int, metadata: str) -> None:
        """
        Write records and the position after them in one transaction.

        Raises:
            Refused: Kafka rejects a record; nothing is written, and the writer stays usable.
            NotUsable: another replay has taken over.
            Unreachable: it is unknown whether they were written.
        """


class Replays(Protocol):
    """What a replay needs of Kafka; see `app.kafka.dead_letter_replay`."""

    def positions(self, partitions: Collection[Partition]) -> Offsets:
        """Return where earlier replays stopped, without disturbing any."""

    def make_room(self, topic: str, partitions: int, settings: Mapping[str, str]) -> list[Partition]:
        """Create a topic if it is missing; return its partitions."""

    def open(
        self, partitions: Collection[Partition], others: Collection[Partition]
    ) -> AbstractContextManager[Sequence[tuple[Partition, PartitionWriter, CommittedOffset | None]]]:
        """Return an open writer and its position for each dead-letter partition; it may write to `others`, too."""


class Plan(NamedTuple):
    """
    How many dead letters of a selection to replay at most, and how often one may fail before it is parked.

    Without `attempts`, what fails stays as it is, and no other replay learns of it.
    """

    selection: Selection
    limit: int | None
    attempts: int | None


class DeadLetterReplay:
    """Replays dead letters, one partition after the other."""

    def __init__(self, plan: Plan, ledger: ReplayLedger, cleanse: Cleanse) -> None:
        self._plan = plan
        self.ledger = ledger
        self._cleanse = cleanse
        self._rest: Remainder
        """The current partition."""
        self._writer: PartitionWriter
        self._left_at: int | None = None
        """The offset of its first dead letter left for a later replay."""
        self._committed = -1
        """The last committed offset."""
        self.parking: Sequence[Partition] = ()
        """The partitions of the parking topic, perhaps fewer than those of the dead letters; a dry run needs none."""
        self.tally = Tally()

    def dry_run(self, records: Iterable[Record]) -> None:
        for waiting, fate in self._fates(records):
            self.ledger.cleansed(waiting)  # a second one of the same record would not be replayed either
            self._count(waiting, fate)

    def run(
        self, rest: Remainder, batches: Iterable[Sequence[Record]], writer: PartitionWriter
    ) -> Iterator[tuple[int, int]]:
        """Replay a partition; yield after each batch how many were replayed and how many offsets passed."""
        self._rest, self._left_at, self._committed, self._writer = rest, rest.first_left, rest.committed, writer
        self._write([], at := rest.span.begin)
        for records in batches:
            if records:
                position = records[-1].offset + 1
                if fates := self._fates(records):
                    self._commit(fates, position)
                yield len(fates), position - at
                at = position
            if self.is_enough():
                return
        self._write([], rest.span.end)

    def _write(self, records: Sequence[tuple[Partition, OutgoingRecord]], position: int) -> None:
        """
        Commit. The metadata says where the next replay goes on.

        The offset only grows, wherever this replay begins: a transaction that began at or above the committed offset is
        taken for an aborted one.
        """
        self._committed = max(position, self._committed + 1)
        place = position if self._left_at is None else min(position, self._left_at)
        self._writer.commit(records, self._committed, self._rest.metadata(place))

    def _fates(self, records: Iterable[Record]) -> list[tuple[Waiting, Fate]]:
        taken = self._taken(records)
        return list(zip(taken, self._cleanse.of([each.record for each in taken]), strict=True))

    def _taken(self, records: Iterable[Record]) -> list[Waiting]:
        taken: list[Waiting] = []
        sources: dict[str, list[Waiting]] = defaultdict(list)
        for record in records:
            waiting = Waiting.of(letter := Letter.of(record))
            if waiting is None:
                self.tally.not_replayable += 1
            elif self.ledger.holds(waiting) or any(
                waiting.is_of(each.letter.topic_id) for each in sources[waiting.letter.origin]
            ):
                self.tally.handled += 1
            elif not self._plan.selection.takes(letter) or self.is_enough(len(taken)):
                self.tally.not_chosen += 1
                self._leave(record)
            else:
                taken.append(waiting)
                sources[waiting.letter.origin].append(waiting)
        return taken

    def _leave(self, record: Record) -> None:
        self._left_at = record.offset if self._left_at is None else min(record.offset, self._left_at)

    def is_enough(self, more: int = 0) -> bool:
        return self._plan.limit is not None and self.tally.replayed + more >= self._plan.limit

    def _commit(self, fates: Sequence[tuple[Waiting, Fate]], position: int) -> None:
        """Commit; if Kafka rejects a record, bisect until that record is found."""
        records = [each for waiting, fate in fates for each in self._written(waiting, fate)]
        try:
            self._write(records, position)
        except Refused as error:
            if len(fates) == 1:
                self._commit([self._refused(*fates[0], error.cause)], position)
                return
            half = len(fates) // 2
            self._commit(fates[:half], fates[half][0].letter.record.offset)
            self._commit(fates[half:], position)
            return
        for waiting, fate in fates:
            self._count(waiting, fate)

    def _refused(self, waiting: Waiting, fate: Fate, cause: str) -> tuple[Waiting, Fate]:
        if fate.reason:
            msg = f"Kafka no longer accepts the dead letter {waiting.letter.place} of {waiting.letter.origin}: {cause}"
            raise NotUsable(msg, f"fix the limits of {fate.to.topic} and of {PARKING.format(fate.to.topic)}")
        return waiting, self._cleanse.refused(waiting.record, cause)

    def _written(self, waiting: Waiting, fate: Fate) -> Iterable[tuple[Partition, OutgoingRecord]]:
        count = REPLAYS, b"%d" % (waiting.replays + 1)
        ids = [(TOPIC_ID, topic_id.encode())] if (topic_id := waiting.letter.topic_id) else []
        if fate.filtered:
            return (self.ledger.cleansed(waiting),)
        if not fate.reason:
            kept = [each for each in fate.written.headers if each[0] != SOURCE]
            headers = [*kept, (SOURCE, waiting.letter.origin.encode()), *ids, count]
            return (fate.to, fate.written._replace(headers=headers)), self.ledger.cleansed(waiting)
        if self._plan.attempts is None:
            self._leave(waiting.letter.record)
            return ()
        headers = [*fate.written.headers, *ids, count]
        to = self.parking[fate.to.number % len(self.parking)] if self._parks(waiting) else fate.to
        return (to, fate.written._replace(headers=headers)), self.ledger.failed(waiting)

    def _parks(self, waiting: Waiting) -> bool:
        return self._plan.attempts is not None and waiting.replays + 1 >= self._plan.attempts

    def _count(self, waiting: Waiting, fate: Fate) -> None:
        self.tally.then[waiting.letter.reason] += 1
        if fate.reason:
            self.tally.now[fate.reason] += 1
            self.tally.parked += self._parks(waiting)
        elif fate.filtered:
            self.tally.filtered += 1
        else:
            self.tally.cleansed += 1


def replaying(settings: Config, clients: Clients, into: str | None) -> TaskConfig:
    """Return the task configuration of replays into a topic. Raises ConfigError if that is one of the service's."""
    kafka, source = clients.destinations, settings.source
    tasks = task_config(settings, kafka, NOBODY)
    if into is not None:
        # `sink.kafka` may name the source's own cluster, so its topics' names are refused on any.
        sources = clients.topics.source_topics(source.topics, source.topics_pattern, ())
        own = {settings.dead_letters.topic, *sources}
        refuse_own_topics({"--into": into}, own, OwnTopics(settings.dead_letters.topic, settings.placeholder))
    sink = kafka.destination(into) if into else tasks.sink
    return replace(tasks, group=GROUP.format(tasks.group), sink=sink)


class Session:
    """A replay of the chosen dead letters, with the clients that it needs; `tasks` are those of `replaying`."""

    def __init__(
        self, tasks: TaskConfig, plan: Plan, cleanse: Cleanse, *, clients: Clients, kafka: Replays, reader: Reader
    ) -> None:
        topic = tasks.dead_letters
        ledger = ReplayLedger(LEDGER.format(topic.topic), tasks.sink.topic)
        self.replay = DeadLetterReplay(plan, ledger, cleanse)
        self._tasks = tasks
        self._kafka = kafka
        self._reader = reader
        self._topics = clients.destinations
        self._letters = DeadLetterReader(topic.topic, self._topics, reader)
        self._selection = plan.selection
        self._look()

    def _look(self) -> None:
        """Find out where the dead letters begin and end that can be read now."""
        self._watermarks = self._letters.watermarks()
        self._wanted = self._letters.spans(self._watermarks, self._selection)

    @property
    def length(self) -> int:
        """How many offsets there are to read at most."""
        return sum(each.length for each in self._wanted.values())

    def dry_run(self, advance: Callable[[int], object]) -> None:
        """Count the outcomes, and write nothing; call `advance` with the number of offsets done."""
        positions, name = self._kafka.positions(self._watermarks), self.replay.ledger.place.topic
        if self._topics.source_topics([name], None, [name]):  # a dry run does not create it
            self._read_ledger(dry_run=True)
        for partition in self._watermarks:
            rest = self._rest(partition, positions.get(partition))
            advance(rest.span.begin - self._wanted[partition].begin)
            for records in read(self._reader, {partition: rest.span}, advance):
                self.replay.dry_run(records)
                if self.replay.is_enough():
                    return

    def carry_out(self, pace: Pace, advance: Callable[[int], object]) -> None:
        """Replay; call `advance` with the number of offsets done. After an error, committed work counts."""
        with self._kafka.open([*self._watermarks], [*self._watermarks, *self._make_room()]) as writers:
            # Only now: the fence has ended all other writers, and the transactions that an earlier replay left open.
            self._look()
            self._read_ledger(dry_run=False)
            for partition, writer, committed in writers:
                rest = self._rest(partition, committed)
                advance(rest.span.begin - self._wanted[partition].begin)
                if rest.span.length and not self.replay.is_enough():
                    batches = steps(read(self._reader, {partition: rest.span}), pace.step(STEP))
                    for replayed, done in self.replay.run(rest, batches, writer):
                        advance(done)
                        pace.wait(replayed)

    def count_hidden(self) -> None:
        """Count the offsets that an open transaction holds back from beginning to end; a live service's does not."""
        hidden = {each: marks for each, marks in self._watermarks.items() if marks.last_stable < marks.high_watermark}
        for each, now in self._topics.watermarks(hidden).items():
            if now.last_stable == (then := hidden[each]).last_stable:
                self.replay.tally.hidden += then.high_watermark - then.last_stable

    def _rest(self, partition: Partition, committed: CommittedOffset | None) -> Remainder:
        wanted, log_start = self._wanted[partition], self._watermarks[partition].log_start
        return Remainder.of(self._tasks.sink.topic, committed, wanted, log_start)

    def _make_room(self) -> list[Partition]:
        topic = self._tasks.dead_letters
        entries = self._kafka.make_room(LEDGER.format(topic.topic), 1, {"cleanup.policy": "compact"})
        for_ever = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        settings = for_ever | {"max.message.bytes": str(topic.max_bytes)}
        parking = self._kafka.make_room(PARKING.format(topic.topic), topic.partitions, settings)
        self.replay.parking = parking
        return [*entries, *parking]

    def _read_ledger(self, *, dry_run: bool) -> None:
        """
        Read what is replayed. A line whose entry has expired, or is in an open transaction, would be written again.

        Raises NotUsable if entries expire; if one may be in an open transaction, only before something is written.
        """
        place, tools = self.replay.ledger.place, KafkaTools.of(self._tasks.output_kafka)
        marks = whole([place], self._topics.watermarks([place]))[place]
        if marks.last_stable < marks.high_watermark and not dry_run:
            where = f"--topic {quote(place.topic)} --partition {place.number}"
            cure = f"{tools.find_hanging(where)}, end it, and run the replay again"
            raise NotUsable(f"a transaction is open in {place}, so it is unknown what is replayed", cure)
        if "delete" in (policy := self._topics.cleanup_policy(place.topic)):
            cure = tools.configure(place.topic, "cleanup.policy=compact")
            cure += "; what was replayed before its first entry would be written again: leave it out with --since"
            raise NotUsable(f"{place.topic} forgets what is replayed: its cleanup.policy is {policy}", cure)
        for records in read(self._reader, {place: Span(marks.log_start, marks.last_stable)}):
            for record in records:
                self.replay.ledger.read(record)


def steps(batches: Iterable[Sequence[Record]], most: int) -> Iterator[Sequence[Record]]:
    """Split batches into steps of at most this many records, one per transaction."""
    for records in batches:
        yield from (records[begin : begin + most] for begin in range(0, len(records), most))


class Pace:
    """Limits a replay to a rate of dead letters per second; None is no limit."""

    def __init__(
        self,
        rate: int | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def step(self, most: int) -> int:
        return most if self._rate is None else min(most, max(1, self._rate // 4))

    def wait(self, replayed: int) -> None:
        if self._rate is not None:
            self._due = max(self._due, self._clock() - 1) + replayed / self._rate
            self._sleep(max(0.0, self._due - self._clock()))
