"""How a transaction with a pending offset ended, judged by its records in the sink and the dead letters."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from app.headers import Header
from app.kafka import hanging
from app.kafka.hanging import LOOKS, Ends, HangingTransactions, mark
from app.model import Partition

RAW, OTHER = Partition("raw", 0), Partition("raw", 1)
CLEAN, DEAD = Partition("clean", 0), Partition("dead", 0)
BEGAN_AT = 50


class Message(NamedTuple):
    """A record of a target."""

    offset: int
    headers: Sequence[Header] = ()
    visible: bool = True
    partition: Partition = CLEAN


class Logs(HangingTransactions):
    """Targets as lists. `elsewhere` are the ends of those that must be asked for, if they have a leader."""

    def __init__(self, logs: dict[Partition, list[Message]], elsewhere: Mapping[Partition, Ends] | None = None) -> None:
        super().__init__({}, "g")
        self.logs = logs
        self.elsewhere = elsewhere or {}

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, Ends]:
        return {each: at for each, at in self.elsewhere.items() if each in partitions}

    def _read(
        self, spans: Mapping[Partition, range], deadline: float, isolation: str = "read_uncommitted"
    ) -> Iterator[Any]:
        for partition, span in spans.items():
            for each in self.logs[partition]:
                if each.offset in span and (each.visible or isolation == "read_uncommitted"):
                    yield each._replace(partition=partition)


def line(at: int, began_at: int = BEGAN_AT, source: Partition = RAW, *, visible: bool = True) -> Message:
    """Return the first line of a transaction."""
    return Message(at, [mark(source, "g", began_at)], visible)


def letter(at: int, offset: int, *, visible: bool = True) -> Message:
    """Return a dead letter of the source."""
    origin = {"topic": RAW.topic, "partition": str(RAW.number), "offset": str(offset)}
    return Message(at, [(f"__connect.errors.{name}", text.encode()) for name, text in origin.items()], visible)


def forged(at: int, offset: int, began_at: str) -> Message:
    """Return a dead letter whose source record had headers like ours."""
    stage: Header = ("__connect.errors.stage", b"VALUE_CONVERTER")
    own = [stage, *letter(at, offset).headers]
    theirs: list[Header] = [
        ("winnow.transaction", f"winnow/g/raw/0@{began_at}".encode()),
        *letter(at, 7).headers,
        stage,
    ]
    return Message(at, [*theirs, *own])


def was_committed(lines: list[Message], letters: list[Message], stable: int = 100, high: int = 100) -> bool | None:
    """Ask how the transaction that began at BEGAN_AT ended; both targets have the same ends."""
    ends = Ends(stable, high)
    return Logs({CLEAN: lines, DEAD: letters}).was_committed(RAW, {CLEAN: ends, DEAD: ends}, BEGAN_AT)


START = Message(0)
"""A foreign record, which shows that nothing was deleted."""


@pytest.mark.parametrize(
    ("lines", "letters", "committed"),
    [
        ([START, line(7)], [START], True),
        ([START], [START, letter(7, BEGAN_AT + 3)], True),
        ([START, line(7, visible=False)], [START], False),
        ([START], [START, letter(7, BEGAN_AT, visible=False)], False),
        ([START], [START], False),
        ([], [START], None),
        ([START, line(7, 40)], [Message(5), letter(7, BEGAN_AT - 1)], False),
        ([START, line(7, source=OTHER)], [START], False),
        ([START, line(7), line(9, visible=False)], [START], False),
        ([START, line(7, BEGAN_AT + 5)], [START], None),
        ([START, line(7), line(9, BEGAN_AT + 5, visible=False)], [START], True),
        (
            [START, line(7), line(9, BEGAN_AT + 5, visible=False)],
            [START, letter(7, BEGAN_AT), letter(9, BEGAN_AT + 5, visible=False)],
            True,
        ),
        ([START, line(7, visible=False), line(9, BEGAN_AT + 5, visible=False)], [START], False),
        ([Message(5)], [START], None),
        ([Message(5), line(7)], [Message(5)], True),
        ([Message(5), line(7, visible=False)], [Message(5)], False),
        ([START, line(7, visible=False)], [START, letter(7, BEGAN_AT)], None),
    ],
    ids=[
        "lines",
        "dead letters",
        "aborted lines",
        "aborted dead letters",
        "an offset alone",
        "an empty log",
        "only earlier ones",
        "only those of another source",
        "a second attempt",
        "the offset was set back",
        "the next one was aborted",
        "the next one was aborted, with dead letters",
        "both were aborted",
        "lines deleted",
        "dead letters deleted, lines visible",
        "dead letters deleted, lines aborted",
        "contradiction",
    ],
)
def test_its_last_records_tell(lines: list[Message], letters: list[Message], committed: bool | None) -> None:  # a case
    """Visible records were committed, invisible ones were not; in doubt an operator decides."""
    assert committed is was_committed(lines, letters)


def test_what_hangs_everywhere_counts_as_aborted() -> None:
    """No reader has seen any of it, so aborting it everywhere is consistent."""
    assert was_committed([START, line(7)], [START, letter(7, BEGAN_AT)], stable=7) is False


@pytest.mark.parametrize(("lines", "committed"), [([Message(5)], False), ([Message(5), line(7)], True)])
def test_what_hangs_was_not_written_where_it_wrote_before(lines: list[Message], committed: bool) -> None:  # a case
    """Keys may have put other lines of the same transaction anywhere."""
    other, here = Partition("clean", 1), Ends(100, 100)
    logs = Logs({CLEAN: [START, line(7)], DEAD: [START], other: lines}, {other: here})

    assert committed is logs.was_committed(RAW, {CLEAN: Ends(7, 100), DEAD: here}, BEGAN_AT, [other], [other])


def test_lines_that_hang_say_nothing_about_the_growth_of_the_dead_letters() -> None:
    """The letters are where the dead-letter topic had fewer partitions."""
    other, here = Partition("dead", 1), Ends(100, 100)
    logs = Logs({CLEAN: [START, line(7)], DEAD: [START], other: [START, letter(7, BEGAN_AT)]}, {other: here})

    assert logs.was_committed(RAW, {CLEAN: Ends(7, 100), DEAD: here}, BEGAN_AT, [other]) is True


def test_letters_that_hang_say_nothing_about_the_growth_of_the_sink() -> None:
    """The lines are where the sink had fewer partitions, too far back for a look."""
    other, here, end = Partition("clean", 1), Ends(100, 100), 10 * LOOKS[-1]
    lines = [line(end - LOOKS[-1] - 1)]
    logs = Logs({CLEAN: [START], DEAD: [START, letter(7, BEGAN_AT)], other: lines}, {other: Ends(end, end)})

    assert logs.was_committed(RAW, {CLEAN: here, DEAD: Ends(7, 100)}, BEGAN_AT, [other], [other]) is None


def test_what_hangs_in_one_place_is_known_by_another() -> None:
    """The markers were written wherever there was a leader."""
    logs = Logs({CLEAN: [START, line(7)], DEAD: [START, letter(7, BEGAN_AT)]})

    assert logs.was_committed(RAW, {CLEAN: Ends(7, 100), DEAD: Ends(100, 100)}, BEGAN_AT) is True


@pytest.mark.parametrize(
    ("lines", "others", "stable", "committed"),
    [
        ([START], [START, line(7)], 100, True),
        ([START], [Message(5), line(7)], 100, True),
        ([START], [Message(5), letter(7, BEGAN_AT + 3)], 100, True),
        ([START], [START, line(7, visible=False)], 100, False),
        ([Message(5)], [START, line(7, visible=False)], 100, False),
        ([Message(5)], [START, line(7, 40)], 100, None),
        ([START], [Message(5)], 100, False),
        ([START], [], 100, False),
        ([START], [START, line(7, visible=False)], 7, False),
        ([START], [START, line(7), line(9, BEGAN_AT + 5)], 100, False),
        ([START, line(7, visible=False)], [START, line(7)], 100, False),
        ([START, line(7)], [START, line(7, visible=False)], 100, True),
    ],
    ids=[
        "its lines",
        "its lines, where retention has deleted others",
        "its dead letters",
        "aborted lines",
        "aborted lines, and others are deleted here",
        "only earlier ones, and others are deleted here",
        "none of this source",
        "nothing",
        "lines that hang",
        "the offset was moved back since",
        "its partition comes first: aborted",
        "its partition comes first: committed",
    ],
)
def test_its_lines_are_where_keys_put_them(
    lines: list[Message], others: list[Message], stable: int, committed: bool | None
) -> None:
    """Keys chose its partition. Most other partitions never had a record of this source."""
    other, here = Partition("clean", 1), Ends(100, 100)
    logs = Logs({CLEAN: lines, DEAD: [START], other: others}, {other: Ends(stable, 100)})

    assert committed is logs.was_committed(RAW, {CLEAN: here, DEAD: here}, BEGAN_AT, rest=[other])


@pytest.mark.parametrize(
    ("lines", "before", "committed"),
    [
        ([START], [START, line(7)], True),
        ([START], [START, line(7, visible=False)], False),
        ([START], [START], False),
        ([START], [Message(5), line(7, 40)], False),
        ([START], [Message(5)], None),
        ([START], [START, line(7), line(9, BEGAN_AT + 5)], None),
        ([Message(5)], [START, line(7)], True),
        ([START, line(7, 40)], [Message(5)], False),
        ([START, line(7, visible=False)], [START, line(7)], False),
    ],
    ids=[
        "its lines",
        "aborted lines",
        "none of this source",
        "only earlier ones",
        "lines deleted",
        "the offset was set back",
        "its lines, and others are deleted here",
        "it had grown before",
        "its partition comes first",
    ],
)
def test_its_lines_are_where_it_wrote_before(
    lines: list[Message], before: list[Message], committed: bool | None
) -> None:  # a case
    """The sink got more partitions. Where its lines were then, they are searched for as where they would be now."""
    other, here = Partition("clean", 1), Ends(100, 100)
    logs = Logs({CLEAN: lines, DEAD: [START], other: before}, {other: here})

    assert committed is logs.was_committed(RAW, {CLEAN: here, DEAD: here}, BEGAN_AT, [other], [other])


@pytest.mark.parametrize(("back", "committed"), [(LOOKS[0] + 1, True), (LOOKS[-1], True), (LOOKS[-1] + 1, None)])
def test_where_it_wrote_before_others_have_written_since(back: int, committed: bool | None) -> None:  # a case
    """Too far back it is not searched for, and an operator decides."""
    other, here, end = Partition("clean", 1), Ends(100, 100), 10 * LOOKS[-1]
    logs = Logs({CLEAN: [START], DEAD: [START], other: [line(end - back)]}, {other: Ends(end, end)})

    assert committed is logs.was_committed(RAW, {CLEAN: here, DEAD: here}, BEGAN_AT, [other], [other])


def test_many_partitions_are_searched_less_far_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the search would take longer than it may: it would begin again for ever, and no operator would know."""
    monkeypatch.setattr(hanging, "MOST", LOOKS[-1])
    end, here = 10 * LOOKS[-1], Ends(100, 100)
    before = {Partition("clean", number): Ends(end, end) for number in (1, 2)}

    for back, committed in ((LOOKS[-1] // 2, True), (LOOKS[-1] // 2 + 1, None)):
        logs = Logs({CLEAN: [START], DEAD: [START], **{each: [line(end - back)] for each in before}}, before)
        assert committed is logs.was_committed(RAW, {CLEAN: here, DEAD: here}, BEGAN_AT, [*before])


@pytest.mark.parametrize(
    ("lines", "committed"),
    [
        ([START, line(7)], True),
        ([START, line(7, visible=False)], False),
        ([START, line(7, BEGAN_AT + 5)], None),
    ],
    ids=["committed", "aborted", "the offset was set back"],
)
def test_other_partitions_are_asked_only_if_its_own_leave_it_open(
    lines: list[Message], committed: bool | None
) -> None:  # a case
    """One without a leader delays nothing that is decided."""
    here, silent = Ends(100, 100), [Partition("clean", 1)]
    logs = Logs({CLEAN: lines, DEAD: [START]})

    assert committed is logs.was_committed(RAW, {CLEAN: here, DEAD: here}, BEGAN_AT, silent, silent)


@pytest.mark.parametrize("where", ["before", "rest"])
def test_a_partition_that_cannot_be_searched_is_waited_for(where: str) -> None:
    """Its lines may be there."""
    here, logs = Ends(100, 100), Logs({CLEAN: [START], DEAD: [START]})

    with pytest.raises(KafkaException, match="clean-1 has no leader"):
        logs.was_committed(RAW, {CLEAN: here, DEAD: here}, BEGAN_AT, **{where: [Partition("clean", 1)]})


@pytest.mark.parametrize("count", [2, 300])
def test_no_look_is_repeated(count: int) -> None:
    """Where keys choose, its output goes to every partition, and the first look at them may be as long as the last."""
    sizes: list[int] = []

    class Counting(Logs):
        def _read(self, spans: Mapping[Partition, range], deadline: float, isolation: str = "") -> Iterator[Any]:
            sizes.append(sum(map(len, spans.values())))
            return iter(())

    ends = {Partition("clean", number): Ends(10**9, 10**9) for number in range(count)}
    Counting({}).was_committed(RAW, ends, BEGAN_AT)

    assert sizes == ([20_000, 600_000] if count == 2 else [hanging.MOST])


def test_many_partitions_are_read_by_one_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer for each of hundreds would take longer than the search may: it would begin again for ever."""
    readers: list[Mapping[Partition, int]] = []

    def reading(_: object, starts: Mapping[Partition, int], *_ends: object, **_fails: object) -> Iterator[Any]:
        readers.append(starts)
        yield [Message(0, partition=each) for each in starts]

    class Ended(HangingTransactions):
        def ends(self, partitions: Collection[Partition]) -> dict[Partition, Ends]:
            return dict.fromkeys(partitions, Ends(100, 100))

    monkeypatch.setattr(hanging, "read", reading)
    own, rest = [CLEAN, DEAD], [Partition("clean", number) for number in range(1, 301)]
    found = Ended({}, "g")

    assert found.was_committed(RAW, found.ends(own), BEGAN_AT, rest=rest) is False
    assert [set(own), set(rest)] == [set(each) for each in readers]


def test_behind_an_open_transaction_nothing_is_known() -> None:
    """It may be committed there but not readable yet."""
    with pytest.raises(KafkaException, match="another transaction"):
        was_committed([START, line(6, 10, OTHER), line(7)], [START], stable=6)


def test_it_is_looked_for_before_the_next_one() -> None:
    """That one began an offset later, and shows that this one has records further back."""
    high = 10 * LOOKS[-1]
    lines = [START, line(high - LOOKS[0] - 1), line(high - 1, BEGAN_AT + 1, visible=False)]

    assert was_committed(lines, [START], high, high) is True


@pytest.mark.parametrize(("back", "committed"), [(LOOKS[0] + 1, True), (LOOKS[-1] + 1, None)])
def test_it_is_looked_for_at_the_end(back: int, committed: bool | None) -> None:  # a case
    """A little back it is found; too far back it is not searched for."""
    high = 10 * LOOKS[-1]

    assert committed is was_committed([START, line(high - back)], [START], high, high)


@pytest.mark.parametrize("began_at", ["x", "", "-1", "60", str(2**63 - 1), "9" * 5000])
def test_no_source_record_marks_a_transaction(began_at: str) -> None:
    """A dead letter keeps its record's headers. A forged mark ends no task and aborts no transaction."""
    logs = Logs({CLEAN: [], DEAD: [forged(7, BEGAN_AT + 3, began_at)]})

    assert {DEAD: BEGAN_AT + 3} == logs.last_offsets(RAW, {DEAD: Ends(5, 100)})
    assert {} == logs.last_offsets(OTHER, {DEAD: Ends(5, 100)})
    assert was_committed([START], [START, forged(7, BEGAN_AT + 3, began_at)]) is True


def test_a_mark_that_is_no_offset_is_none() -> None:
    """Writing to the sink is not enough to end tasks either."""
    strange: Header = ("winnow.transaction", b"winnow/g/raw/0@x")

    assert {} == Logs({CLEAN: [Message(7, [strange])]}).last_offsets(RAW, {CLEAN: Ends(5, 100)})


def test_a_dead_letter_that_a_replay_put_back_shows_nothing() -> None:
    """It names a record of long ago, behind the transaction of the service that hangs."""
    by_replay: Header = ("winnow.transaction", b"winnow/g.dlq-replay/dead/0@9")
    back = letter(8, 42)
    logs = Logs({DEAD: [letter(7, 1000), back._replace(headers=[*back.headers, by_replay])]})

    assert {DEAD: 1000} == logs.last_offsets(RAW, {DEAD: Ends(5, 100)})


class SlowLogs(Logs):
    """Each read times out after one record, unless it was the last."""

    def _read(
        self, spans: Mapping[Partition, range], deadline: float, isolation: str = "read_uncommitted"
    ) -> Iterator[Any]:
        first, *more = super()._read(spans, deadline, isolation)
        yield first
        if more:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def last_offset(logs: Logs, *ends: Ends) -> int | None:
    """Ask once for each of these ends; all but the last time out."""
    for each in ends[:-1]:
        with pytest.raises(KafkaException, match="_TIMED_OUT"):
            logs.last_offsets(RAW, {CLEAN: each})
    return logs.last_offsets(RAW, {CLEAN: ends[-1]}).get(CLEAN)


def test_a_look_at_a_long_open_transaction_goes_on_where_it_failed() -> None:
    """Another application may keep one open for a quarter of an hour; no lane must wait for its end."""
    logs = SlowLogs({CLEAN: [Message(5), line(6), Message(7), Message(8)]})

    assert last_offset(logs, *[Ends(5, 9)] * 4) == BEGAN_AT
    assert last_offset(logs, *[Ends(5, 9)] * 2, *[Ends(7, 9)] * 2) is None, "the mark has become stable"
    assert last_offset(logs, *[Ends(5, 9)] * 3, Ends(5, 7), Ends(5, 7)) == BEGAN_AT, "the log became shorter"


class Admin:
    """A client of a cluster on which the sink has no leader."""

    made: ClassVar[weakref.WeakSet[Admin]] = weakref.WeakSet()

    def __init__(self, *_: object, **__: object) -> None:
        self.made.add(self)

    def list_topics(self, *_: object) -> None:
        """Look up nothing."""

    def list_offsets(self, wanted: Mapping[TopicPartition, Any], **_: object) -> dict[TopicPartition, Future[Any]]:
        answers: dict[TopicPartition, Future[Any]] = {each: Future() for each in wanted}
        for each, answer in answers.items():
            if each.topic == CLEAN.topic:
                answer.set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
            else:
                answer.set_result(Message(5))
        return answers


def test_a_client_that_is_replaced_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task collects no garbage until its round is over; a lane without a leader asks again and again until then."""
    monkeypatch.setattr(hanging, "AdminClient", Admin)
    transactions = HangingTransactions({}, "g")
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            assert {DEAD: Ends(5, 5)} == transactions.ends([CLEAN, DEAD])
        assert len(Admin.made) <= 1
        transactions.connect([CLEAN.topic])
        transactions.close()
        assert not Admin.made
    finally:
        gc.enable()


def test_a_client_is_kept_while_every_leader_responds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each owner of a partition asks as it begins, and a task may have hundreds of them."""
    monkeypatch.setattr(hanging, "AdminClient", Admin)
    transactions = HangingTransactions({}, "g")
    client = transactions.connect([DEAD.topic])

    transactions.ends([DEAD])
    assert client is transactions.connect([DEAD.topic])

    transactions.ends([CLEAN, DEAD])
    assert client is not transactions.connect([DEAD.topic])
    with pytest.raises(KafkaException, match="LEADER_NOT_AVAILABLE"):
        transactions.ends([CLEAN])


def test_all_targets_are_read_at_once() -> None:
    """By key, a source writes to each partition of the sink: with a consumer after another, a start would take minutes."""
    targets = [Partition("clean", number) for number in range(100)]
    reads: list[Collection[Partition]] = []

    class CountedLogs(Logs):
        def _read(self, spans: Mapping[Partition, range], *args: Any) -> Iterator[Any]:
            reads.append(spans.keys())
            return super()._read(spans, *args)

    logs = CountedLogs({each: [line(5 + each.number, BEGAN_AT + each.number)] for each in targets})

    found = logs.last_offsets(RAW, dict.fromkeys(targets, Ends(5, 200)))

    assert {each: BEGAN_AT + each.number for each in targets} == found
    assert [set(targets)] == reads
