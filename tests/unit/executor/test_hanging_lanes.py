"""A task with a hanging lane: the others continue, and its own records arrive late, but all of them once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from structlog.testing import capture_logs

from app import watchdog
from app.executor import task
from app.executor.parse import make_parser
from app.model import OffsetRange, Outcome, Partition, Receipt
from app.records import Lines
from app.watchdog import Watchdog, in_time
from tests.fakes import (
    FakeClients,
    FakeClock,
    FakeConsumer,
    FakeKafka,
    FakeTransaction,
    FakeWriter,
    SourceRecord,
    make_assignment,
    make_task_config,
)
from tests.independent import cleansed, line
from tests.support.waiting import PATIENCE, until

A, B = Partition("raw", 0), Partition("raw", 3)
RECORDS = 300
"""Far more than can be parked."""
LONG = 20 * PATIENCE
"""In seconds of the clock: a task that has so long ends before its time, even on a busy machine."""
EXPECTED = [cleansed(n) for n in range(RECORDS)]


class QuickClock(FakeClock):
    """A clock on which twenty seconds pass in one."""

    speed = 20

    def __call__(self) -> float:
        return self.now + self.speed * time.monotonic()


class TwoLanes:
    """A task with two lanes. A test may make the first one's writers block until the second has sent all."""

    def __init__(self) -> None:
        self.kafka = FakeKafka({each: [SourceRecord(line(n)) for n in range(RECORDS)] for each in (A, B)})
        self.b_has_sent, self.over = threading.Event(), threading.Event()
        self.clock, self.task_config = QuickClock(), make_task_config()
        consumers = partial(FakeConsumer, tick=0.0)
        self.clients = FakeClients(self.kafka, self.task_config, self.clock, writers=self._writer, consumers=consumers)
        self.made = 0
        self.change: Callable[[FakeWriter, int], None] = lambda _writer, _number: None
        self.kind: type[FakeTransaction] = FakeTransaction
        """The writers of the first lane."""

    @property
    def consumer(self) -> FakeConsumer:
        (consumer,) = self.clients.made
        return consumer

    def _writer(self, clients: FakeClients, partition: Partition) -> FakeWriter:
        writer = self.kind(clients, partition) if partition == A else FakeTransaction(clients, partition)
        if partition == A:
            self.made += 1
            self.change(writer, self.made)
        else:
            self._watch(writer)
        return writer

    def _watch(self, writer: FakeWriter) -> None:
        send = writer.send

        def watched(lines: Lines) -> None:
            send(lines)
            if EXPECTED[-1] in lines.values.to_pylist():
                self.b_has_sent.set()

        writer.send = watched  # type: ignore[method-assign]

    def run(self, seconds: float = LONG, end: int | None = RECORDS) -> list[Receipt]:
        """Run the task to the agreed end, or for this long."""
        ranges = OffsetRange(A, None, 0, end), OffsetRange(B, None, 0, end)
        assignment = make_assignment(self.task_config, *ranges)
        parser = make_parser(self.task_config)
        return task.run(assignment, self.clients, parser, seconds, runtime=self.clock.threaded)


@pytest.fixture
def lanes() -> Iterator[TwoLanes]:
    """Yield the two lanes, then release what still waits."""
    made = TwoLanes()
    yield made
    made.over.set()


def test_the_memory_of_a_lane_that_commits_is_left_alone(lanes: TwoLanes) -> None:
    """Only one thread at a time takes librdkafka's delivery reports; those of other lanes are taken meanwhile."""
    commits, b_is_freed, freed = threading.Event(), threading.Event(), set[Partition]()
    make = lanes.clients.writer

    def writer(partition: Partition, offsets: object) -> FakeWriter:
        made = make(partition, offsets)
        commit = made.commit

        def free() -> None:
            if commits.is_set():
                freed.add(partition)
                if partition == B:
                    b_is_freed.set()

        def hangs(offset: int, metadata: str) -> None:
            if offset:
                commits.set()
                assert b_is_freed.wait(PATIENCE)
                commits.clear()
                lanes.clock.now += LONG  # the deadline
            commit(offset, metadata)

        made.free = free  # type: ignore[method-assign]
        if partition == A:
            made.commit = hangs  # type: ignore[method-assign]
        return made

    lanes.clients.writer = writer  # type: ignore[method-assign]

    lanes.run(end=None)

    assert {B} == freed


def hang_until(event: threading.Event, lanes: TwoLanes, passes: float = 0.0) -> None:
    """Let each commit but that of the start wait for an event, after this much time."""

    def change(writer: FakeWriter, _: int) -> None:
        commit = writer.commit

        def hangs(offset: int, metadata: str) -> None:
            if offset:
                lanes.clock.now += passes
                assert event.wait(PATIENCE)
            commit(offset, metadata)

        writer.commit = hangs  # type: ignore[method-assign]

    lanes.change = change


def test_a_lane_that_commits_holds_up_no_other(lanes: TwoLanes) -> None:
    """While its commit hangs, the others send. If too much of it is parked, it is held, and read again afterwards."""
    hang_until(lanes.b_has_sent, lanes)

    lanes.run()

    assert {A: EXPECTED, B: EXPECTED} == lanes.kafka.sink


def test_an_opening_that_hangs(lanes: TwoLanes) -> None:
    """The others start without the lane, which follows."""

    def change(writer: FakeWriter, number: int) -> None:
        open_ = writer.open

        def hangs() -> None:
            assert number > 1 or lanes.b_has_sent.wait(PATIENCE)
            open_()

        writer.open = hangs  # type: ignore[method-assign]

    lanes.change = change

    lanes.run()

    assert {A: EXPECTED, B: EXPECTED} == lanes.kafka.sink
    assert 1 == lanes.made


def test_a_heartbeat_while_the_first_lane_opens(lanes: TwoLanes) -> None:
    """The driver ends the task through another lane, which commits its offset again even without records."""
    lanes.kafka.source = {A: [], B: []}
    beat, make, committed = threading.Event(), lanes.clients.writer, list[int]()

    def writer(partition: Partition, offsets: object) -> FakeWriter:
        made = make(partition, offsets)
        open_, commit = made.open, made.commit

        def hangs() -> None:
            assert partition != A or beat.wait(PATIENCE)
            open_()

        def noted(offset: int, metadata: str) -> None:
            commit(offset, metadata)
            if partition == B:
                if offset in committed:
                    beat.set()
                    lanes.clock.now += LONG  # the deadline
                committed.append(offset)

        made.open, made.commit = hangs, noted  # type: ignore[method-assign]
        return made

    lanes.clients.writer = writer  # type: ignore[method-assign]

    lanes.run(end=None)

    assert beat.is_set()


def test_an_output_queue_that_stays_full(lanes: TwoLanes) -> None:
    """What does not fit waits in a thread, and so does what comes after it."""
    rest: list[bytes | None] = []

    class FullWriter(FakeTransaction):
        @property
        def full(self) -> bool:
            return bool(rest)

        def _send(self, values: list[bytes | None]) -> None:
            assert not rest
            rest.extend(values)

        def send_rest(self) -> None:
            assert lanes.b_has_sent.wait(PATIENCE)
            super()._send(list(rest))
            rest.clear()

    lanes.kind = FullWriter

    lanes.run()

    assert {A: EXPECTED, B: EXPECTED} == lanes.kafka.sink


def test_a_commit_that_hangs_at_the_end(lanes: TwoLanes) -> None:
    """The task reports without the lane and leaves its records to the next round. Its clients close once it returns."""
    lanes.clock.speed = 0  # the last commit of the other lane must not count as hanging, even on a busy machine
    hang_until(lanes.over, lanes, passes=1.0)

    def is_the_deadline() -> None:
        lanes.clock.now += 3

    lanes.b_has_sent.set = is_the_deadline  # type: ignore[method-assign]

    a, b = lanes.run(3, None)

    assert (Outcome.FAILED, 0) == (a.outcome, a.end)
    assert "did not finish in time" in a.error
    assert (Outcome.DONE, RECORDS) == (b.outcome, b.end)
    assert not lanes.consumer.closed
    lanes.over.set()
    closed_by(lanes)


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enforce each call's timeout."""
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 0.0)


def hang_in_commits(lanes: TwoLanes, producers: int, *, happens: bool = False, until: threading.Event) -> None:
    """Let the first commits of this many producers exceed their timeout, whether they succeed before that or not."""

    def change(writer: FakeWriter, number: int) -> None:
        commit = writer.commit

        def hangs(offset: int, metadata: str) -> None:
            if not offset or number > producers:
                commit(offset, metadata)
                return
            if happens:
                commit(offset, metadata)
            with in_time(0.05, "commit_transaction"):
                assert until.wait(PATIENCE)
            commit(offset, metadata)

        writer.commit = hangs  # type: ignore[method-assign]

    lanes.change = change


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("happens", [True, False])
def test_a_commit_that_does_not_return(lanes: TwoLanes, *, happens: bool) -> None:
    """A new producer takes over: each line arrives and counts once, and the old call's late actions change nothing."""
    hang_in_commits(lanes, 1, happens=happens, until=lanes.over)

    with capture_logs() as logs:
        a, b = lanes.run()
    in_time_closed = lanes.consumer.closed
    lanes.over.set()
    closed_by(lanes)

    assert not in_time_closed
    assert {A: EXPECTED, B: EXPECTED} == lanes.kafka.sink
    assert [(RECORDS, RECORDS, 1), (RECORDS, RECORDS, 0)] == [
        (each.records, each.out, each.reopened) for each in (a, b)
    ]
    errors = [entry["error"] for entry in logs if entry["log_level"] == "warning"]
    assert ["raw-0: commit_transaction (0 s) did not return; replacing the producer"] == errors


@pytest.mark.usefixtures("strict")
def test_a_successor_that_hangs_too_ends_the_worker(lanes: TwoLanes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise more and more threads would hang; a new worker starts without any."""

    class Bitten(BaseException):
        pass

    def bite(_: Watchdog) -> None:
        raise Bitten

    monkeypatch.setattr(Watchdog, "bite", bite)
    hang_in_commits(lanes, 2, until=lanes.over)

    with pytest.raises(Bitten):
        lanes.run()

    assert 2 == lanes.made


@pytest.mark.usefixtures("strict")
def test_a_successor_of_a_successor(lanes: TwoLanes) -> None:
    """Once the first call has returned, another one may hang."""
    second_opens = threading.Event()
    hang_in_commits(lanes, 1, until=second_opens)
    first = lanes.change

    def change(writer: FakeWriter, number: int) -> None:
        first(writer, number)
        if number == 2:
            second_opens.set()
            hang_in_commits(lanes, 2, until=lanes.over)
            lanes.change(writer, number)

    lanes.change = change

    a, _ = lanes.run()

    assert {A: EXPECTED, B: EXPECTED} == lanes.kafka.sink
    assert (3, 2) == (lanes.made, a.reopened)


def closed_by(lanes: TwoLanes) -> None:
    """Wait until the task's clients are closed."""
    until(lambda: lanes.consumer.closed, "the end of the clients")
