"""A replay of dead letters: what it takes, what it writes, and where the next one starts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest

from app.errors import NotUsable, Refused
from app.headers import Header
from app.model import CommittedOffset, Partition, Topic, Watermarks
from app.operate.dead_letter_replay import DeadLetterReplay, Pace, Plan, Session, steps
from app.operate.dead_letters import Letter, Selection
from app.operate.ledger import Remainder, ReplayLedger, Waiting
from app.operate.reading import Span
from app.records import Fate, OutgoingRecord, Record
from tests.fakes import make_task_config
from tests.fakes.driver import DriverKafka

DEAD, CLEAN, PARKED, LEDGER = Partition("dead", 0), Partition("clean", 3), Partition("dead.parked", 0), "dead.replayed"
VALUES = (1, b"good"), (2, b"bad")
Commit = tuple[list[tuple[Partition, OutgoingRecord]], int, str]


def letter(offset: int, value: bytes = b"good", *, source: int | None = None, more: Sequence[Header] = ()) -> Record:
    origin = offset + 100 if source is None else source
    errors = {"stage": "V", "topic": "raw", "partition": "3", "offset": str(origin), "exception.class.name": "empty"}
    named = [(f"__connect.errors.{name}", text.encode()) for name, text in errors.items()]
    return Record(DEAD, offset, 50 + origin, b"k", value, [("own", b"1"), *named, *more])


def waiting(record: Record) -> Waiting:
    found = Waiting.of(Letter.of(record))
    assert found is not None
    return found


class Cleanse:
    """A parser that accepts `good`."""

    def of(self, records: Sequence[Record]) -> list[Fate]:
        return [self._fate(each) for each in records]

    def _fate(self, record: Record) -> Fate:
        if record.value == b"dropped":
            return Fate(record, Partition("", -1), OutgoingRecord(None, None, [], 0), filtered="health")
        if record.value in (b"good", b"heavy"):
            return Fate(record, CLEAN, OutgoingRecord(record.key, b"line", [], record.timestamp))
        return self.refused(record, "", "bad")

    def refused(self, record: Record, cause: str, reason: str = "refused") -> Fate:
        to = Partition("dead", record.partition.number)
        return Fate(
            record, to, OutgoingRecord(record.key, record.value, record.headers, record.timestamp), reason, cause
        )


class RefusingWriter:
    """Records commits; Kafka rejects lines from these source offsets, and dead letters with these values."""

    def __init__(self, refused: Sequence[bytes] = ()) -> None:
        self.commits: list[Commit] = []
        self._refused = refused

    def commit(self, records: Sequence[tuple[Partition, OutgoingRecord]], position: int, metadata: str) -> None:
        if any(
            value in self._refused
            for _, each in records
            for value in (each.value, dict(each.headers).get("winnow.source"))
        ):
            raise Refused(DEAD, "INVALID_RECORD")
        self.commits.append((list(records), position, metadata))

    def written(self, topic: str) -> list[OutgoingRecord]:
        return [each for records, *_ in self.commits for to, each in records if to.topic == topic]

    @property
    def metadata(self) -> str:
        return self.commits[-1][2]


def replay(
    ledger: ReplayLedger | None = None,
    limit: int | None = None,
    selection: Selection | None = None,
    attempts: int | None = 3,
) -> DeadLetterReplay:
    plan = Plan(selection or Selection(), limit, attempts)
    one = DeadLetterReplay(plan, ledger or ReplayLedger(LEDGER, "clean"), Cleanse())
    one.parking = [PARKED]
    return one


def span(begin: int = 0, end: int = 10, committed: CommittedOffset | None = None, log_start: int = 0) -> Remainder:
    return Remainder.of("clean", committed, Span(begin, end), log_start)


def run(
    one: DeadLetterReplay, *records: Record, writer: RefusingWriter | None = None, over: Remainder | None = None
) -> RefusingWriter:
    used = writer or RefusingWriter()
    list(one.run(over or span(), [list(records)], used))
    return used


def as_read(entries: Sequence[OutgoingRecord], destination: str = "clean") -> ReplayLedger:
    """Return the ledger that another replay reads from these entries."""
    ledger = ReplayLedger(LEDGER, destination)
    for each in entries:
        ledger.read(Record(ledger.place, 0, 0, each.key, each.value, []))
    return ledger


class TestWaiting:
    def test_which_record_it_was(self) -> None:
        """The source record's headers are those before ours; a header keeps a timestamp that was moved."""
        moved = letter(1, more=[("__connect.errors.timestamp", b"-5"), ("__connect.errors.timestamp", b"7")])

        found = waiting(moved)

        assert (Partition("raw", 3), 101, 7, b"k", b"good", [("own", b"1")]) == tuple(found.record)
        assert ("raw-3@101", 0) == (found.letter.origin, found.replays)
        assert 151 == waiting(letter(1)).record.timestamp

    @pytest.mark.parametrize(
        "record",
        [
            Record(DEAD, 1, 2, None, b"x", []),
            letter(1)._replace(headers=[("__connect.errors.topic", b"raw"), ("__connect.errors.partition", b"x")]),
            letter(1, more=[("__connect.errors.exception.message", b"long; cut from 9 bytes, SHA-256 " + b"a" * 64)]),
        ],
        ids=["nobody's", "no place", "cut"],
    )
    def test_what_cannot_be_replayed(self, record: Record) -> None:
        """A dead letter must name its origin and be complete."""
        one = replay()

        writer = run(one, record)

        assert (1, []) == (one.tally.not_replayable, writer.written("clean"))
        assert "clean=10" in writer.metadata


class TestReplay:
    def test_what_a_filter_drops_is_not_replayed_again(self) -> None:
        """It goes nowhere, and the ledger says that it is handled."""
        one = replay()

        writer = run(one, letter(1, b"dropped"))

        assert (1, 1, 0) == (one.tally.replayed, one.tally.filtered, one.tally.failed)
        assert ([], []) == (writer.written("clean"), writer.written("dead"))
        assert as_read(writer.written(LEDGER)).holds(waiting(letter(1)))

    def test_a_line_and_what_fails_again(self) -> None:
        """A line names its source; a failure goes back with a count; the ledger has both; the end is stored last."""
        one = replay()

        writer = run(one, letter(1), letter(2, b"bad"))

        (line,), (back,) = writer.written("clean"), writer.written("dead")
        assert (b"line", [("winnow.source", b"raw-3@101"), ("winnow.replays", b"1")]) == (line.value, line.headers)
        assert ("winnow.replays", b"1") == back.headers[-1]
        assert [b"raw-3@101>clean", b"raw-3@102"] == [each.key for each in writer.written(LEDGER)]
        assert {Partition(LEDGER, 0)} == {
            to for records, *_ in writer.commits for to, _ in records if to.topic == LEDGER
        }
        assert [0, 3, 10] == [position for _, position, _ in writer.commits]
        assert "winnow-replay/1 clean=10" == writer.metadata
        assert (1, 1, 0, {"empty": 2}, {"bad": 1}) == (
            one.tally.cleansed,
            one.tally.failed,
            one.tally.parked,
            one.tally.then,
            one.tally.now,
        )
        assert [("empty", 2, 0), ("bad", 0, 1)] == one.tally.rows()

    def test_what_was_replayed_is_left_alone(self) -> None:
        """Handled records are known by source, whatever the dead letter's offset, in this replay and later ones."""
        writer = run(replay(), letter(1), letter(2, b"bad"), letter(3, source=101))
        assert 1 == len(writer.written("clean"))

        ledger = as_read(writer.written(LEDGER))
        one = replay(ledger)
        again = run(one, letter(1), letter(2, b"bad"), letter(7, b"bad", source=102, more=[("winnow.replays", b"1")]))

        assert [] == again.written("clean")
        assert [b"2"] == [dict(each.headers)["winnow.replays"] for each in again.written("dead")]
        assert (2, 1) == (one.tally.handled, one.tally.failed)

    def test_another_destination_has_its_own_lines(self) -> None:
        """A record replayed into the sink can be replayed into another topic, too."""
        entries = run(replay(), letter(1), letter(2, b"bad")).written(LEDGER)

        ledger = as_read(entries, "other")

        assert not ledger.holds(waiting(letter(1)))
        assert ledger.holds(waiting(letter(2, b"bad")))

    @pytest.mark.parametrize("size", [1, 9])
    def test_a_record_that_has_two_dead_letters(self, size: int) -> None:
        """Only one counts, in one step or two, even if their timestamps are those of writing."""
        one, writer = replay(), RefusingWriter()
        letters = [
            letter(1),
            letter(2, b"bad"),
            letter(3, source=101)._replace(timestamp=9),
            letter(4, b"bad", source=102),
        ]

        list(one.run(span(), steps([letters], size), writer))
        ledger = as_read(writer.written(LEDGER))

        assert (1, 1) == (len(writer.written("clean")), len(writer.written("dead")))
        assert all(ledger.holds(waiting(each._replace(timestamp=7))) for each in letters)

    @pytest.mark.parametrize("size", [1, 9])
    def test_a_topic_that_was_created_again(self, size: int) -> None:
        """The topic's id, which the line and a dead letter that goes back keep, tells another record at the same offset."""
        one, writer = replay(), RefusingWriter()
        old, new, later = (("__connect.errors.topic.id", each) for each in (b"old", b"new", b"later"))
        letters = [letter(at, value, source=at % 2, more=[each]) for each in (old, new) for at, value in VALUES]

        list(one.run(span(), steps([letters], size), writer))
        ledger = as_read(writer.written(LEDGER))

        assert (2, 2) == (len(writer.written("clean")), len(writer.written("dead")))
        for topic in ("clean", "dead"):
            assert [old, new] == [
                header for each in writer.written(topic) for header in each.headers if header in (old, new)
            ]
        assert all(ledger.holds(waiting(each)) for each in letters)
        assert not any(ledger.holds(waiting(letter(at, source=at % 2, more=[later]))) for at, _ in VALUES)

    def test_where_an_id_is_not_known_it_is_the_same_topic(self) -> None:
        """Dead letters and ledger entries of earlier versions have no id."""
        known = [("__connect.errors.topic.id", b"one")]
        ledger = as_read(run(replay(), letter(1), letter(2, b"bad")).written(LEDGER))
        assert ledger.holds(waiting(letter(1, more=known)))
        assert ledger.holds(waiting(letter(2, b"bad", more=known)))
        ledger = as_read(run(replay(), letter(1, more=known)).written(LEDGER))
        assert ledger.holds(waiting(letter(1)))

        before = as_read(
            [OutgoingRecord(b"raw-3@101>clean", b"0 151", [], 0), OutgoingRecord(b"raw-3@102", b"1 -1", [], 0)]
        )

        assert before.holds(waiting(letter(1, more=known)))
        assert before.holds(waiting(letter(2, more=[*known, ("winnow.replays", b"1")])))
        assert not before.holds(waiting(letter(2, more=[*known, ("winnow.replays", b"2")])))

    def test_the_highest_count_of_a_record_counts(self) -> None:
        """Whether the entry has the topic's id or not."""
        entries = [OutgoingRecord(b"raw-3@102" + id_, b"%d" % count, [], 0) for id_, count in ((b"", 0), (b"#one", 2))]

        assert as_read(entries).holds(waiting(letter(2, more=[("winnow.replays", b"1")])))

    @pytest.mark.parametrize("value", [None, b"", b"x 1"])
    def test_an_entry_without_a_count_says_nothing(self, value: bytes | None) -> None:
        """It was deleted, or is another tool's."""
        assert not as_read([OutgoingRecord(b"raw-3@101>clean", value, [], 0)]).holds(waiting(letter(1)))

    def test_what_fails_too_often_is_parked(self) -> None:
        """The count continues over replays."""
        one = replay(attempts=2)

        writer = run(one, letter(1, b"bad", more=[("winnow.replays", b"1")]), letter(2, b"bad"))

        assert [b"2"] == [dict(each.headers)["winnow.replays"] for each in writer.written("dead.parked")]
        assert (1, 2, 1) == (one.tally.parked, one.tally.failed, len(writer.written("dead")))

    def test_a_parking_topic_with_fewer_partitions_than_the_dead_letters(self) -> None:
        """The dead letters were given more since. The replay would stop each time where no partition takes one."""
        one = replay(attempts=1)
        one.parking = [PARKED, Partition("dead.parked", 1)]

        writer = run(one, letter(1, b"bad"))

        assert [Partition("dead.parked", 3 % 2)] == [to for to, _ in writer.commits[1][0] if to.topic == "dead.parked"]

    def test_a_trial_counts_for_nobody(self) -> None:
        """What fails on the way to another topic stays, and is read again next time: the parser may be better then."""
        one = replay(attempts=None, selection=Selection(reasons=["empty"]))
        heavy = letter(3, b"heavy")
        other = letter(4)._replace(headers=[*letter(4).headers, ("__connect.errors.exception.class.name", b"other")])

        writer = run(one, letter(1), letter(2, b"bad", more=[("winnow.replays", b"7")]), heavy, other)

        assert (2, 1, 0, 1) == (one.tally.cleansed, one.tally.failed, one.tally.parked, one.tally.not_chosen)
        assert ([], []) == (writer.written("dead"), writer.written("dead.parked"))
        assert [b"raw-3@101>clean", b"raw-3@103>clean"] == [each.key for each in writer.written(LEDGER)]
        assert "winnow-replay/1 clean=2" == writer.metadata

    def test_what_is_not_chosen_waits(self) -> None:
        """The next replay starts no later than the first dead letter left."""
        writer = run(replay(selection=Selection(reasons=["other"])), letter(4), letter(5))

        assert ([], "winnow-replay/1 clean=4") == (writer.written("clean"), writer.metadata)

    def test_a_limit(self) -> None:
        """A replay stops at the limit, and stores no end that it has not reached."""
        one = replay(limit=2)

        writer = run(one, letter(1), letter(2), letter(3))

        assert (2, 1, True) == (one.tally.cleansed, one.tally.not_chosen, one.is_enough())
        assert (4, "winnow-replay/1 clean=3") == writer.commits[-1][1:]

    def test_a_dry_run_counts(self) -> None:
        """Nothing is written, and a record with two dead letters counts once."""
        one = replay()

        one.dry_run([letter(1), letter(2, b"bad"), letter(3, source=101)])

        assert (1, 1, 1) == (one.tally.cleansed, one.tally.failed, one.tally.handled)

    def test_a_line_that_kafka_refuses(self) -> None:
        """The rejected line is found and goes back; the others are written once, with growing positions."""
        one, writer = replay(), RefusingWriter(refused=[b"raw-3@104"])

        run(one, *map(letter, range(1, 8)), writer=writer)

        assert [b"raw-3@%d" % n for n in (101, 102, 103, 105, 106, 107)] == [
            dict(each.headers)["winnow.source"] for each in writer.written("clean")
        ]
        assert (6, {"refused": 1}) == (one.tally.cleansed, one.tally.now)
        positions = [position for _, position, _ in writer.commits]
        assert sorted(set(positions)) == positions

    def test_a_dead_letter_that_kafka_refuses(self) -> None:
        """The replay stops, because the dead letter would be lost."""
        with pytest.raises(NotUsable, match=r"0@1 of raw-3@101.*INVALID_RECORD"):
            run(replay(), letter(1, b"bad"), writer=RefusingWriter(refused=[b"bad"]))


class TestRemainder:
    def test_the_first_replay_reads_all(self) -> None:
        """Without a position of ours, nothing is settled."""
        assert (2, 10, None) == _shape(span(log_start=2))
        assert (0, 10, None) == _shape(span(committed=CommittedOffset(7, "someone's clean=5")))
        assert (0, 10, None) == _shape(span(committed=CommittedOffset(7, "winnow-replay/1 clean=x")))
        assert (6, 0) == (span(4).span.length, span(12).span.length)

    def test_later_ones_go_on(self) -> None:
        """A replay starts where something was left, or where it is wanted; then everything before still waits."""
        committed = CommittedOffset(9, "winnow-replay/1 other=8 clean=4")

        assert (4, 10, None) == _shape(span(committed=committed))
        assert (6, 10, 4) == _shape(span(6, committed=committed))
        assert "winnow-replay/1 other=8 clean=9" == span(committed=committed).metadata(9)

    def test_an_offset_never_goes_back(self) -> None:
        """Its metadata does. What began above a lower offset would be taken for aborted, and be aborted again."""
        writer = run(replay(), letter(4), over=span(committed=CommittedOffset(20, "winnow-replay/1 clean=4")))

        assert [(21, 4), (22, 5), (23, 10)] == [
            (offset, int(metadata.rpartition("=")[2])) for _, offset, metadata in writer.commits
        ]

    def test_what_was_not_read_waits(self) -> None:
        """A replay from a time on does not settle what is older."""
        writer = run(replay(), letter(6), over=span(6))

        assert "winnow-replay/1 clean=0" == writer.metadata

    def test_few_destinations_are_remembered(self) -> None:
        """The metadata of an offset has little room."""
        many = " ".join(f"t{n}={n}" for n in range(20))

        found = span(committed=CommittedOffset(9, f"winnow-replay/1 {many}")).metadata(3)

        assert (9, "clean=3") == (len(found.split()), found.split()[-1])


def _shape(of: Remainder) -> tuple[int, int, int | None]:
    return *of.span, of.first_left


def test_steps() -> None:
    """A transaction is never larger than a step."""
    assert [2, 1, 1] == [len(each) for each in steps([[letter(1), letter(2), letter(3)], [], [letter(4)]], 2)]


def test_a_rate_is_kept() -> None:
    """At a rate, small steps with waits; without one, no wait."""
    slept: list[float] = []
    pace = Pace(20, clock=lambda: sum(slept), sleep=slept.append)

    for _ in range(8):
        pace.wait(pace.step(1_000))

    assert (5, 2.0) == (pace.step(1_000), sum(slept))
    free = Pace(None, sleep=slept.append)
    free.wait(1_000)
    assert (8, 1_000) == (len(slept), free.step(1_000))


def test_what_is_not_in_the_ledger_takes_no_memory() -> None:
    """A replay asks for each dead letter that it reads, even if it takes few of millions."""
    ledger = ReplayLedger(LEDGER, "clean")
    before = deepcopy(vars(ledger))

    assert not ledger.holds(waiting(letter(1)))
    assert before == vars(ledger)


def test_a_ledger_of_millions_fits_into_memory() -> None:
    """An entry of either kind takes no text: a number, and its place in a set or a dict."""
    entries = [
        OutgoingRecord(b"raw-3@%d#one" % at + to, b"1", [], 0) for at in range(20_000) for to in (b"", b">clean")
    ]

    tracemalloc.start()
    try:
        ledger = as_read(entries)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert ledger.holds(waiting(letter(1, source=19_999)))
    assert used / len(entries) < 150


class DeadLetterKafka(DriverKafka):
    """A cluster with an empty dead-letter topic, and a ledger that may have an open transaction at its end."""

    def __init__(self, ledger: Watermarks, policy: str = "compact") -> None:
        super().__init__()
        self.marks = {Partition(LEDGER, 0): ledger}
        self._policies = {LEDGER: policy}

    def cleanup_policy(self, name: str) -> str:
        return self._policies[name]

    def source_topics(self, names: Collection[str], *_: object) -> dict[str, Topic]:
        return {name: Topic(name, "id", 1) for name in names}

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
        return {each: self.marks.get(each, Watermarks(0, 0, 0)) for each in partitions}


class NoReplays:
    """There is nothing to replay. It remembers the settings of the topics that are made."""

    def __init__(self) -> None:
        self.created: dict[str, Mapping[str, str]] = {}

    def make_room(self, topic: str, partitions: int, settings: Mapping[str, str]) -> list[Partition]:
        self.created[topic] = settings
        return [Partition(topic, 0)]

    @contextmanager
    def open(self, *_: object) -> Iterator[list[Any]]:
        yield []

    def batches(self, *_: Any) -> Iterator[list[Record]]:
        yield []


def session(kafka: DeadLetterKafka, replays: NoReplays) -> Session:
    plan, tasks = Plan(Selection(), None, 3), make_task_config()
    return Session(tasks, plan, Cleanse(), clients=kafka.clients, kafka=replays, reader=replays)  # type: ignore[arg-type]  # what it uses


def carried_out(ledger: Watermarks, policy: str = "compact") -> NoReplays:
    replays = NoReplays()
    session(DeadLetterKafka(ledger, policy), replays).carry_out(Pace(None), lambda _: None)
    return replays


@pytest.mark.parametrize("policy", ["compact", ""])
def test_a_ledger_that_keeps_its_entries_will_do(policy: str) -> None:
    """So will one whose policy we may not read."""
    carried_out(Watermarks(0, 0, 0), policy)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_ledger_that_forgets_is_refused(policy: str) -> None:
    """Somebody created it. Once an entry has expired, its line would be written a second time."""
    with pytest.raises(
        NotUsable, match=rf"{policy}: kafka-configs .* --topic {LEDGER} --add-config cleanup.policy=compact"
    ):
        carried_out(Watermarks(0, 0, 0), policy)


def test_entries_that_nobody_can_read_are_not_taken_for_missing() -> None:
    """A transaction that hangs in the ledger may have been committed: its lines would be written a second time."""
    carried_out(Watermarks(0, 4, 4))

    with pytest.raises(NotUsable, match=r"a transaction is open in dead\.replayed-0.*find-hanging"):
        carried_out(Watermarks(0, 0, 4))


def test_what_an_open_transaction_hides_is_counted() -> None:
    """Only if it stands from beginning to end: each transaction of the service is open for a moment."""
    kafka = DeadLetterKafka(Watermarks(0, 0, 0))
    kafka.marks[DEAD] = Watermarks(2, 4, 9)
    stands, passes = session(kafka, NoReplays()), session(kafka, NoReplays())

    stands.count_hidden()
    kafka.marks[DEAD] = Watermarks(2, 9, 12)
    passes.count_hidden()

    assert (5, 0) == (stands.replay.tally.hidden, passes.replay.tally.hidden)


class Interrupted(NoReplays):
    """The last replay was killed: its open transaction hides all dead letters from the fourth on, until it is fenced."""

    def __init__(self) -> None:
        super().__init__()
        self.kafka = DeadLetterKafka(Watermarks(0, 0, 0))
        self.kafka.marks[DEAD] = Watermarks(0, 3, 9)
        self.writer = RefusingWriter()

    @contextmanager
    def open(self, *_: object) -> Iterator[list[Any]]:
        self.kafka.marks[DEAD] = Watermarks(0, 9, 9)
        yield [(DEAD, self.writer, None)]

    def batches(self, starts: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[list[Record]]:
        yield [letter(offset) for each in starts for offset in range(starts[each], ends[each])]


def test_what_a_killed_replay_has_hidden_is_replayed() -> None:
    """Nothing hides it once the earlier replay is fenced, so nobody would be told to replay again."""
    replays = Interrupted()
    one = session(replays.kafka, replays)

    one.carry_out(Pace(None), lambda _: None)
    one.count_hidden()

    assert (9, 0) == (one.replay.tally.cleansed, one.replay.tally.hidden)
    assert 9 == len(replays.writer.written("clean"))


def test_the_parking_topic_takes_what_the_dead_letters_take() -> None:
    """With the brokers' limit a large one would stop each replay at the same place."""
    made = carried_out(Watermarks(0, 0, 0)).created

    assert str(make_task_config().dead_letters.max_bytes) == made["dead.parked"]["max.message.bytes"]


def test_the_parking_topic_keeps_all_for_ever() -> None:
    """The brokers' defaults may limit its size, or compact it: then the last dead letter of each key would be left."""
    made = carried_out(Watermarks(0, 0, 0)).created["dead.parked"]

    assert ("delete", "-1", "-1") == tuple(made[name] for name in ("cleanup.policy", "retention.ms", "retention.bytes"))
