"""What a task does apart from moving records: heartbeats, memory, and cleaning up."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from app.errors import NotUsable, OffsetPending, Unreachable
from app.executor import task
from app.executor.parse import make_parser
from app.model import CommittedOffset, OffsetRange, Outcome, Partition, Plugin, Receipt
from app.runtime import Runtime
from app.watchdog import Watchdog
from parsers.contract import Parsed, Parser
from parsers.idc_access_log import IdcAccessLog
from tests.fakes import (
    FakeClients,
    FakeClock,
    FakeConsumer,
    FakeKafka,
    FakeOffsets,
    FakeTransaction,
    Killed,
    Mishap,
    Point,
    Script,
    SourceRecord,
    Trouble,
    make_assignment,
    make_task_config,
)
from tests.fakes.simulation import Inline
from tests.independent import cleansed, line
from tests.support.logs import of_event
from tests.support.waiting import PATIENCE

A, B = Partition("raw", 0), Partition("raw", 3)


class Offsets(FakeOffsets):
    """A store that fails first, and records how it was asked and whether it is closed."""

    closed = False

    def __init__(self, kafka: FakeKafka, failures: list[Exception | None]) -> None:
        super().__init__(kafka)
        self.asked: list[bool] = []
        self._failures = failures

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        self.asked.append(stable)
        if self._failures and (failure := self._failures.pop(0)) is not None:
            raise failure
        return super().load(partitions, stable=stable)

    def close(self) -> None:
        self.closed = True


class Pool(Inline):
    ended = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.ended = True


class ObservedTask:
    """A task with two lanes whose offsets are committed, and all that it makes."""

    def __init__(
        self,
        *mishaps: Mishap,
        records: int = 0,
        consumers: Callable[[FakeClients], FakeConsumer] = FakeConsumer,
    ) -> None:
        self.kafka = FakeKafka({each: [SourceRecord(line(n)) for n in range(records)] for each in (A, B)})
        self.kafka.committed = {A: CommittedOffset(0), B: CommittedOffset(0)}
        self.clock, self.task_config = FakeClock(), make_task_config()
        self.clients = FakeClients(
            self.kafka,
            self.task_config,
            self.clock,
            Script(list(mishaps)),
            writers=self._writer,
            consumers=consumers,
        )
        self.clients.offsets = self._offsets  # type: ignore[method-assign]
        self.writers: list[FakeTransaction] = []
        self.stores: list[Offsets] = []
        self.failures: list[Exception | None] = []
        """What the first reads of committed offsets raise; None for one that succeeds."""
        self.pools: list[Pool] = []
        self.change: Callable[[FakeTransaction, Partition], None] = lambda _writer, _partition: None

    def _writer(self, clients: FakeClients, partition: Partition) -> FakeTransaction:
        self.writers.append(FakeTransaction(clients, partition))
        self.change(self.writers[-1], partition)
        return self.writers[-1]

    def _offsets(self) -> Offsets:
        self.stores.append(Offsets(self.kafka, self.failures))
        return self.stores[-1]

    def run(
        self, seconds: float, parser: Parser | None = None, *, end: int | None = None, runtime: Runtime | None = None
    ) -> list[Receipt]:
        assignment = make_assignment(self.task_config, OffsetRange(A, 0, 0, end), OffsetRange(B, 0, 0, end))
        runtime = runtime or replace(self.clock.runtime, threads=self._pool)
        return task.run(assignment, self.clients, parser or make_parser(self.task_config), seconds, runtime)

    def _pool(self, *_: object) -> Pool:
        self.pools.append(Pool())
        return self.pools[-1]


def test_an_idle_task_shows_that_it_is_alive() -> None:
    """It commits its control partition's offset every second, and the others' once, at its end."""
    observed = ObservedTask()
    observed.run(20.0)

    control, other = observed.writers
    assert 16 <= control.commits <= 21
    assert 1 == other.commits


def test_memory_is_freed_twice_a_second() -> None:
    """Librdkafka keeps delivered records until their reports are taken; a lane may commit much less often."""
    observed = ObservedTask(records=1_000)
    observed.task_config = make_task_config(commit_seconds=60.0)
    observed.run(20.0)

    assert all(30 <= writer.freed <= 40 for writer in observed.writers)


@pytest.mark.parametrize(
    "mishaps",
    [
        (),
        (Mishap(Point.BEFORE_OPEN, Trouble.TRANSIENT),),
        (Mishap(Point.AFTER_SEND, Trouble.TRANSIENT, 3),),
        (Mishap(Point.BEFORE_COMMIT, Trouble.FENCED),),
        (Mishap(Point.BEFORE_SEND, Trouble.KILLED, 2),),
    ],
)
def test_nothing_is_left_behind(mishaps: tuple[Mishap, ...]) -> None:
    """Every producer is discarded once, and store, consumer and threads are closed, however the task ends."""
    observed = ObservedTask(*mishaps, records=50)
    if any(mishap.trouble is Trouble.KILLED for mishap in mishaps):
        with pytest.raises(Killed):
            observed.run(8.0)
    else:
        observed.run(8.0)

    assert {1} == {writer.discarded for writer in observed.writers}
    assert [True] == [store.closed for store in observed.stores]
    assert [True] == [consumer.closed for consumer in observed.clients.made]
    assert [True] == [pool.ended for pool in observed.pools]
    assert gc.isenabled()


def test_a_task_ends_when_its_ends_are_reached() -> None:
    """A backfill does not wait for its round's deadline. Each partition is committed up to its end, once."""
    observed = ObservedTask(records=20)
    began = observed.clock.now

    receipts = observed.run(1_000.0, end=10)

    assert observed.clock.now - began < 5
    assert [(Outcome.DONE, 10)] * 2 == [(receipt.outcome, receipt.end) for receipt in receipts]
    assert {each: [cleansed(n) for n in range(10)] for each in (A, B)} == observed.kafka.sink


def test_garbage_is_not_collected_inside_a_round() -> None:
    """The collector would visit every consumed message again and again."""
    observed, seen = ObservedTask(records=1), list[bool]()

    class Watching:
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            seen.append(gc.isenabled())
            return make_parser(observed.task_config).parse(lines)

    observed.run(1.0, Watching())

    assert {False} == set(seen)


def test_the_garbage_of_an_own_parser_is_collected() -> None:
    """Its cycles would fill the memory for as long as a round."""
    observed, alive = ObservedTask(records=1), list[weakref.ref[object]]()
    observed.task_config = replace(observed.task_config, parser=Plugin("own"))

    class Node:
        def __init__(self) -> None:
            self.itself = self

    class Cyclic:
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            alive.extend(weakref.ref(Node()) for _ in range(10 * gc.get_threshold()[0]))
            alive[:] = [each for each in alive if each() is not None]
            return IdcAccessLog().parse(lines)

    observed.run(1.0, Cyclic())

    assert len(alive) < 10 * gc.get_threshold()[0]


@pytest.mark.parametrize(("name", "chunks"), [("own", [2_000, 1_000, 1_000]), ("idc-access-log", [4_000])])
def test_a_slow_parser_gets_shorter_chunks(name: str, chunks: list[int]) -> None:
    """Nothing is committed while it works on one, and whoever waits for commits would end the worker."""
    observed, seen = ObservedTask(records=4_000, consumers=partial(FakeConsumer, most=20_000)), list[int]()
    observed.task_config = replace(observed.task_config, parser=Plugin(name))

    class Slow:
        def parse(self, lines: pa.BinaryArray) -> Parsed:
            seen.append(len(lines) // 2)  # of each partition
            observed.clock.now += 0.002 * len(lines)
            return IdcAccessLog().parse(lines)

    observed.run(60.0, Slow())

    assert chunks == [each for each in seen if each]


def test_what_was_taken_during_the_last_commit_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane may still be committing at the deadline. What it took meanwhile is committed before it reports."""
    observed = ObservedTask(records=3, consumers=partial(FakeConsumer, tick=0.05))
    begun, ends = threading.Event(), threading.Event()

    def change(writer: FakeTransaction, partition: Partition) -> None:
        commit = writer.commit

        def held(offset: int, metadata: str) -> None:
            if partition == A and not begun.is_set():
                observed.kafka.source[A] += [SourceRecord(line(n)) for n in range(3, 6)]
                begun.set()
                assert ends.wait(PATIENCE)
            commit(offset, metadata)

        writer.commit = held  # type: ignore[method-assign]

    keep_up, finish = task.Task.keep_up, task.Task.finish

    def begin(self: task.Task, *, catching_up: bool) -> None:
        keep_up(self, catching_up=catching_up)
        assert begun.wait(PATIENCE)

    def end(self: task.Task) -> list[Receipt]:
        ends.set()
        return finish(self)

    monkeypatch.setattr(task.Task, "keep_up", begin)
    monkeypatch.setattr(task.Task, "finish", end)
    observed.change = change

    first, _ = observed.run(0.4, runtime=observed.clock.threaded)  # less than the patience for a call

    assert begun.is_set()
    assert (Outcome.DONE, 6) == (first.outcome, first.end)
    assert [cleansed(n) for n in range(6)] == observed.kafka.sink[A]


@pytest.mark.parametrize("error", [Unreachable("no answer"), NotUsable("no right to read the group", "grant it")])
@pytest.mark.parametrize(("fenced", "writers"), [(False, 2), (True, 5)])
def test_a_start_that_cannot_be_read_is_trouble_like_any_other(error: Exception, writers: int, *, fenced: bool) -> None:
    """Each lane backs off and reopens with a new producer; its receipt has the error, and no record is lost."""
    observed = ObservedTask(records=3)
    # For both lanes' first attempt together, and for one lane's second: before the fence, or both reads after it.
    observed.failures += [None, error, None, error, error] if fenced else [error, error]

    with capture_logs() as logs:
        receipts = observed.run(20.0)

    assert [2, 1] == [receipt.reopened for receipt in receipts]
    assert all(f"cannot read the committed offset: {error}" in receipt.error for receipt in receipts)
    assert {A, B} == {Partition(each["topic"], each["partition"]) for each in of_event(logs, "partition_trouble")}
    assert [1] * writers == [writer.discarded for writer in observed.writers]
    assert {each: [cleansed(n) for n in range(3)] for each in (A, B)} == observed.kafka.sink


def test_a_task_none_of_whose_lanes_opens_tries_again() -> None:
    """Though the store fails meanwhile: no lane has an offset to read then, and none is to blame for it."""
    observed = ObservedTask(records=3)
    observed.failures += [None, Unreachable("no answer")]
    without = {A, B}

    def change(_writer: FakeTransaction, partition: Partition) -> None:
        if partition in without:
            without.remove(partition)
            raise Unreachable("no client")

    observed.change = change
    observed.run(20.0)

    assert {each: [cleansed(n) for n in range(3)] for each in (A, B)} == observed.kafka.sink


def test_a_lane_without_a_producer_tries_again() -> None:
    """A certificate may not match its key yet. The other lane goes on with the producer that it has."""
    observed = ObservedTask(records=3)
    failures = [Unreachable("no client"), Unreachable("no client")]

    def change(_writer: FakeTransaction, partition: Partition) -> None:
        if partition == A and failures:
            raise failures.pop()

    observed.change = change
    first, second = observed.run(20.0)

    assert (2, f"{A}: no client") == (first.reopened, first.error)
    assert 0 == second.reopened
    assert {each: [cleansed(n) for n in range(3)] for each in (A, B)} == observed.kafka.sink


def test_a_task_without_a_consumer_reports_why() -> None:
    """It does nothing, and no worker is lost: the next round tries again."""

    def none(_: FakeClients) -> FakeConsumer:
        raise Unreachable("no client", "replace its key")

    receipts = ObservedTask(records=3, consumers=none).run(20.0)

    assert [
        Receipt(each, 0, 0, outcome=Outcome.FAILED, error="no client: replace its key") for each in (A, B)
    ] == receipts


def test_a_task_that_did_not_begin_forgets_nothing() -> None:
    """What it was to know of its partitions goes on to the next one, and its consumer is closed."""
    observed, window = ObservedTask(records=3), ((5.0, 100, 40),)

    def none() -> Offsets:
        raise Unreachable("no client")

    observed.clients.offsets = none  # type: ignore[method-assign]
    planned = make_assignment(observed.task_config, OffsetRange(A, 0, 0), OffsetRange(B, 0, 0))
    assignment = replace(planned, allowances={A: 70_000}, windows={B: window})

    parser = make_parser(observed.task_config)
    first, second = task.run(assignment, observed.clients, parser, 20.0, observed.clock.runtime)

    assert (70_000, ()) == (first.allowance, first.window)
    assert (None, window) == (second.allowance, second.window)
    assert [True] == [consumer.closed for consumer in observed.clients.made]


def test_a_task_waits_for_stable_offsets() -> None:
    """
    An earlier owner's transaction may be about to move them (KIP-447), also when a lane reopens.

    It does not wait before it fences, when it only looks for a later owner.
    """
    observed = ObservedTask(Mishap(Point.AFTER_SEND, Trouble.TRANSIENT), records=3)

    observed.run(5.0)

    (store,) = observed.stores
    assert [False, True, False, True] == store.asked


@pytest.mark.parametrize("fails", [1, 2])
def test_an_offset_is_pending_only_if_it_cannot_be_read_again(fails: int) -> None:
    """A stable read may fail once because Kafka is slow. The records then need not show how a transaction ended."""
    observed = ObservedTask(Mishap(Point.AFTER_SEND, Trouble.TRANSIENT), records=3)
    slow = Unreachable("timed out")
    observed.failures = [None, None, None, slow, None, *[slow] * (fails - 1)]

    def change(writer: FakeTransaction, partition: Partition) -> None:
        def end_pending(committed: int | None) -> None:
            raise OffsetPending(partition, offset=committed)

        writer.end_pending = end_pending  # type: ignore[method-assign]

    observed.change = change
    first, _ = observed.run(5.0)

    assert [False, True, False, True, False, True] == observed.stores[0].asked[:6]
    assert (Outcome.DONE if fails == 1 else Outcome.BLOCKED) is first.outcome


def test_the_watchdog_is_fed_with_every_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task without records makes progress too."""
    observed, fed = ObservedTask(), list[float]()
    monkeypatch.setattr(Watchdog, "feed", lambda _: fed.append(observed.clock.now))

    observed.run(20.0)

    assert max(later - one for one, later in pairwise(fed)) < 0.3  # a poll takes 0.2


def test_the_clients_are_closed_before_a_task_returns() -> None:
    """The next task needs its memory and connections. Only a hanging call delays it."""
    closed_in = list[threading.Thread]()

    class Consumer(FakeConsumer):
        def close(self) -> None:
            closed_in.append(threading.current_thread())

    observed = ObservedTask(records=3, consumers=Consumer)
    observed.run(2.0, runtime=observed.clock.threaded)

    assert [threading.current_thread()] == closed_in
