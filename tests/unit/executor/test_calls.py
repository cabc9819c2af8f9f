"""Running the calls of lanes in threads: who waits for whom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.errors import PartitionError, Transient
from app.executor.calls import HANGS_SECONDS, MAX_PARKED, SIDE_BY_SIDE, Calls
from app.executor.lane.lane import Lane
from app.executor.lane.states import Ready
from app.model import Outcome, Partition
from app.watchdog import Watchdog, in_time
from tests.fakes import FakeClock
from tests.support.waiting import PATIENCE

LANES = 2 * SIDE_BY_SIDE


class FakeLane:
    """A lane, and its own state, whose calls last until it is released, and which records what it was asked to do."""

    def __init__(self, *, troubled: bool = False) -> None:
        self.ledger = SimpleNamespace(troubled=troubled)
        self.writer = SimpleNamespace(full=False)
        self.running: FakeLane | None = self
        self.outcome: Outcome | None = None
        self.began, self.let_go = threading.Event(), threading.Event()
        self.did: list[str] = []

    def waits(self) -> None:
        self.began.set()
        assert self.let_go.wait(PATIENCE)
        self.writer.full = False
        if self.outcome is not None:
            raise Transient(Partition("raw", 0), "abandoned")

    def hold(self) -> None:
        self.running = None
        self.did.append("hold")

    def give_up(self, error: PartitionError, now: float) -> None:
        self.did.append("give up")

    def run(self, call: Callable[[], object], clock: Callable[[], float]) -> None:
        try:
            call()
        except PartitionError as error:
            self.give_up(error, clock())
        self.did.append("discard")

    def successor(self, call: str, now: float) -> FakeLane:
        self.did.append(f"{call} hangs")
        return FakeLane()

    def abandon(self) -> None:
        self.outcome = Outcome.FAILED
        self.did.append("abandon")
        self.let_go.set()

    send_rest = waits


class CallsHarness:
    """Lanes and the calls under test; time passes only when a test says so."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.lanes: list[FakeLane] = []
        self.replaced: list[Lane] = []
        self.threads = ThreadPoolExecutor(2 * LANES)
        self.watchdog = Watchdog()
        self.calls = Calls(self.threads, self.clock, self.watchdog, lambda ready: ready.send_rest())

    def lane(self, *, troubled: bool = False) -> Lane:
        self.lanes.append(FakeLane(troubled=troubled))
        return cast("Lane", self.lanes[-1])

    def hanging(self, lane: Lane) -> Lane:
        """Return the lane after starting a hanging call for it."""
        self.start(lane)
        self.until(cast("FakeLane", lane).began.is_set)
        self.clock.now += 2 * HANGS_SECONDS
        return lane

    def start(self, lane: Lane) -> None:
        self.calls.start(lane, cast("Any", lane).waits)

    def successors(self) -> list[Lane]:
        """Return the successors so far."""
        self.replaced += self.calls.replace_overdue()
        return self.replaced

    def until(self, condition: Callable[[], bool], tick: float = 0.0) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            self.clock.now += tick
            self.calls.settle_ended()
            time.sleep(0.001)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[CallsHarness]:
    """Yield the harness, then release everything that hangs. What is abandoned returns, however busy the machine is."""
    monkeypatch.setattr("app.executor.calls.RETURN_SECONDS", PATIENCE)
    made = CallsHarness()
    with made.watchdog:
        yield made
    for lane in made.lanes:
        lane.let_go.set()
    made.threads.shutdown()


def test_lanes_that_hang_take_no_thread_from_the_others(harness: CallsHarness) -> None:
    """However many lanes hang, each other lane gets its turn as soon as those before it count as hanging."""
    for _ in range(LANES):
        harness.start(harness.lane())
    well = harness.lane()
    cast("FakeLane", well).let_go.set()
    harness.start(well)
    assert harness.calls.crowded

    harness.until(lambda: well not in harness.calls, tick=HANGS_SECONDS)

    assert not harness.calls.crowded


def test_a_lane_in_trouble_waits_in_a_queue_of_its_own(harness: CallsHarness) -> None:
    """Its next call may well hang again, so it must not delay a healthy lane even for a moment."""
    for _ in range(LANES):
        harness.start(harness.lane(troubled=True))
    well = harness.lane()
    cast("FakeLane", well).let_go.set()
    harness.start(well)

    harness.until(lambda: well not in harness.calls)

    assert not harness.calls.crowded


def test_lanes_in_trouble_take_no_thread_from_each_other_for_long(harness: CallsHarness) -> None:
    """However many of them hang, one that has recovered opens again."""
    for _ in range(LANES):
        harness.start(harness.lane(troubled=True))
    over = harness.lane(troubled=True)
    cast("FakeLane", over).let_go.set()
    harness.start(over)

    harness.until(lambda: over not in harness.calls, tick=HANGS_SECONDS)

    assert LANES == len(harness.calls.ends)


def test_threads_of_calls_that_hung_leave(harness: CallsHarness) -> None:
    """When all calls continue at once, no more run in parallel than usual."""
    for _ in range(LANES):
        harness.start(harness.lane())
    harness.until(lambda: not harness.calls.crowded, tick=HANGS_SECONDS)
    for each in harness.lanes:
        each.let_go.set()
    harness.until(lambda: not harness.calls.ends)
    at_once, most, lock, all_run = 0, 0, threading.Lock(), threading.Event()

    def counted() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
            if at_once == SIDE_BY_SIDE:
                all_run.set()
        assert all_run.wait(PATIENCE)
        time.sleep(0.005)
        with lock:
            at_once -= 1

    for _ in range(2 * LANES):
        harness.calls.start(harness.lane(), cast("Any", counted))
    harness.until(lambda: not harness.calls.ends)

    assert most == SIDE_BY_SIDE


@pytest.mark.parametrize(("lanes", "threads"), [(3, 3), (LANES, SIDE_BY_SIDE)])
def test_there_are_as_many_threads_as_calls_may_run(
    harness: CallsHarness, monkeypatch: pytest.MonkeyPatch, lanes: int, threads: int
) -> None:
    """No thread is started that would find nothing to do."""
    begun = list[object]()
    monkeypatch.setattr(harness.threads, "submit", begun.append)

    for _ in range(lanes):
        harness.start(harness.lane())
    harness.calls.settle_ended()

    assert threads == len(begun)


def test_the_steps_of_a_lane_are_taken_in_order(harness: CallsHarness) -> None:
    """Steps wait for the call of their lane, and none is lost."""
    lane, taken = harness.lane(), list[int]()
    harness.start(lane)
    for number in range(MAX_PARKED):
        harness.calls.step(lane, lambda _, number=number: taken.append(number))  # type: ignore[misc]
    assert [] == taken
    harness.lanes[0].let_go.set()

    harness.until(lambda: lane not in harness.calls)
    harness.calls.step(lane, lambda _: taken.append(MAX_PARKED))

    assert list(range(MAX_PARKED + 1)) == taken


@pytest.mark.parametrize("troubled", [True, False])
def test_where_too_many_steps_wait_the_lane_that_hangs_is_held(harness: CallsHarness, *, troubled: bool) -> None:
    """Its steps are dropped and reading it stops; the steps of the others continue, and nothing waits."""
    hangs = harness.lane(troubled=troubled)
    if troubled:
        harness.start(hangs)
    else:
        harness.hanging(hangs)
    well, taken = harness.lane(), list[str]()
    for _ in range(MAX_PARKED):
        harness.calls.step(hangs, lambda _: taken.append("of the lane that hangs"))
    harness.start(well)
    harness.calls.step(well, lambda _: taken.append("well"))
    harness.calls.step(hangs, lambda _: taken.append("of the lane that hangs"))
    harness.lanes[1].let_go.set()

    harness.until(lambda: well not in harness.calls)

    assert ["hold"] == harness.lanes[0].did
    assert ["well"] == taken


def test_where_too_many_steps_wait_for_calls_that_do_not_hang_the_task_waits(harness: CallsHarness) -> None:
    """It takes no more than it can write, and reads no partition twice."""
    one, other, taken = harness.lane(), harness.lane(), list[int]()
    harness.start(one)
    harness.start(other)
    for number in range(MAX_PARKED):
        harness.calls.step(one, lambda _, number=number: taken.append(number))  # type: ignore[misc]
    threading.Timer(0.1, harness.lanes[1].let_go.set).start()

    harness.calls.step(other, lambda _: taken.append(99))

    assert [99] == taken
    assert [[], ["discard"]] == [lane.did for lane in harness.lanes]


def test_what_finds_no_room_is_sent_beside_the_flow(harness: CallsHarness) -> None:
    """A lane with a full output queue waits for room in a thread, and its next steps wait with it."""
    lane, taken = harness.lane(), list[int]()

    def fill(_: Ready) -> None:
        harness.lanes[0].writer.full = True

    harness.calls.step(lane, fill)
    harness.calls.step(lane, lambda _: taken.append(1))
    assert lane in harness.calls
    assert [] == taken
    harness.lanes[0].let_go.set()
    harness.until(lambda: lane not in harness.calls)

    assert [1] == taken


def test_at_the_end_calls_that_hang_are_abandoned(harness: CallsHarness) -> None:
    """The others finish; what hangs is abandoned after its time, and what waits for a thread is not started."""
    hanging = [harness.hanging(harness.lane()) for _ in range(3)]
    well = harness.lane()
    threading.Timer(0.1, cast("FakeLane", well).let_go.set).start()
    harness.start(well)

    harness.calls.settle()
    assert hanging == [each for each in (*hanging, well) if each in harness.calls]
    harness.clock.now += 10
    harness.calls.abandon(2.0)

    assert [["abandon", "give up", "discard"]] * 3 + [["discard"]] == [lane.did for lane in harness.lanes]
    assert [] == harness.calls.ends


@pytest.mark.parametrize("troubled", [True, False])
def test_at_the_end_calls_behind_those_that_hang_have_their_turn(
    harness: CallsHarness, monkeypatch: pytest.MonkeyPatch, *, troubled: bool
) -> None:
    """What was taken is committed, even if hanging lanes had occupied every thread."""
    for _ in range(SIDE_BY_SIDE):
        harness.start(harness.lane(troubled=troubled))
    harness.until(lambda: all(lane.began.is_set() for lane in harness.lanes))
    last = harness.lane(troubled=troubled)
    harness.lanes[-1].let_go.set()
    harness.start(last)
    *_, end = harness.calls.ends
    hang_at = harness.clock.now + 2 * HANGS_SECONDS

    def pass_by(ends: Sequence[Future[None]], seconds: float) -> None:
        if harness.clock.now >= hang_at:
            wait([end], PATIENCE)
        harness.clock.now += HANGS_SECONDS

    monkeypatch.setattr("app.executor.calls.wait", pass_by)
    harness.calls.abandon(6 * HANGS_SECONDS)

    assert ["discard"] == harness.lanes[-1].did
    assert all("abandon" in lane.did for lane in harness.lanes[:-1])


def test_what_was_abandoned_is_not_waited_for_again(harness: CallsHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task abandons hanging calls before its receipts and again when it closes; the second time costs nothing."""
    harness.hanging(harness.lane())
    abandoned, waited = list[str](), list[Future[None]]()
    monkeypatch.setattr(harness.lanes[0], "abandon", lambda: abandoned.append("abandon"))
    monkeypatch.setattr("app.executor.calls.wait", lambda ends, _seconds: waited.extend(ends))

    harness.calls.abandon(0.0)
    assert (1, ["abandon"]) == (len(waited), abandoned)
    harness.calls.settle()
    harness.calls.abandon(2.0)

    assert (1, ["abandon"]) == (len(waited), abandoned)


@pytest.mark.parametrize("troubled", [True, False])
def test_at_the_end_calls_without_a_thread_are_not_begun(harness: CallsHarness, *, troubled: bool) -> None:
    """Their lanes end with what is committed."""
    for _ in range(SIDE_BY_SIDE):
        harness.start(harness.lane(troubled=troubled))
    harness.until(lambda: all(lane.began.is_set() for lane in harness.lanes))
    harness.start(harness.lane(troubled=troubled))
    harness.calls.abandon(0.0)

    assert [] == harness.lanes[-1].did
    assert [] == harness.calls.ends


def test_a_call_that_fails_gives_its_lane_up_in_its_thread(harness: CallsHarness) -> None:
    """Discarding a producer may take as long as any other call."""
    lane = harness.lane()
    harness.lanes[0].outcome = Outcome.FAILED
    harness.lanes[0].let_go.set()
    harness.start(lane)

    harness.until(lambda: lane not in harness.calls)

    assert ["give up", "discard"] == harness.lanes[0].did


def test_what_only_a_call_refers_to_ends_in_its_thread(harness: CallsHarness) -> None:
    """The end of a producer waits for its threads, and the task has other lanes to serve."""
    ended_in, started = list[threading.Thread](), threading.Event()

    class Producer:
        def commit(self) -> None:
            assert started.wait(PATIENCE)  # only then have we no reference ourselves

        def __del__(self) -> None:
            ended_in.append(threading.current_thread())

    harness.calls.start(harness.lane(), cast("Any", Producer().commit))
    started.set()
    wait(harness.calls.ends)

    assert 1 == len(ended_in)
    assert threading.current_thread() not in ended_in


def test_a_moment_is_given_only_to_calls_that_do_not_hang(
    harness: CallsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for hanging calls would cost the record flow a moment in each pass."""
    harness.hanging(harness.lane())
    well, waited = harness.lane(), list[object]()
    harness.start(well)
    _, end_of_well = harness.calls.ends
    monkeypatch.setattr("app.executor.calls.wait", lambda ends, seconds: waited.extend(ends))

    harness.calls.settle_soon()

    assert [end_of_well] == waited


@pytest.mark.parametrize(("has_taken", "waits"), [(0.0, 2.0), (1.5, 0.5), (3.0, 0.0)])
def test_a_call_has_its_time_before_it_is_abandoned(
    harness: CallsHarness, monkeypatch: pytest.MonkeyPatch, has_taken: float, waits: float
) -> None:
    """The time it has already taken counts; then its thread gets a moment to return."""
    lane = harness.lane()
    harness.start(lane)
    harness.until(harness.lanes[0].began.is_set)
    harness.clock.now += has_taken
    began, abandoned_at = harness.clock.now, list[float]()
    monkeypatch.setattr(harness.lanes[0], "abandon", lambda: abandoned_at.append(harness.clock.now))

    def pass_by(ends: object, seconds: float) -> None:
        harness.clock.now += 0.25

    monkeypatch.setattr("app.executor.calls.wait", pass_by)
    harness.calls.abandon(2.0)

    assert [began + waits] == abandoned_at


def test_the_task_is_alive_while_it_waits_for_lanes_to_open(
    harness: CallsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits without polling, and feeds the watchdog, because opening hundreds of lanes may outlast it."""
    fed, waited = list[float](), list[float]()
    monkeypatch.setattr(harness.watchdog, "feed", lambda: fed.append(harness.clock.now))

    def pass_by(ends: object, seconds: float) -> None:
        harness.clock.now += 0.25
        waited.append(harness.clock.now)

    harness.start(harness.lane())
    monkeypatch.setattr("app.executor.calls.wait", pass_by)
    began = harness.clock.now
    harness.calls.settle_while_some_end(1.0)

    assert [began + 0.25, began + 0.5, began + 0.75, began + 1.0] == waited
    assert [began, *waited[:3]] == fed


def test_lanes_that_open_one_after_the_other_are_waited_for(
    harness: CallsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that ends shows that Kafka responds, so the others get their full time again."""
    closed = [harness.lane() for _ in range(4)]
    for lane in closed:
        harness.start(lane)
    left = list(zip(harness.lanes, harness.calls.ends, strict=True))

    def pass_by(ends: Sequence[Future[None]], seconds: float) -> None:
        harness.clock.now += 0.75
        lane, end = left.pop()
        lane.let_go.set()
        wait([end])

    monkeypatch.setattr("app.executor.calls.wait", pass_by)
    harness.calls.settle_while_some_end(1.0)

    assert [] == harness.calls.ends


def test_a_call_that_ends_in_its_time_is_not_abandoned(harness: CallsHarness) -> None:
    """Its lane continues with the result."""
    lane = harness.lane()
    harness.start(lane)
    threading.Timer(0.05, harness.lanes[0].let_go.set).start()

    harness.calls.abandon(2.0)

    assert [["discard"], []] == [harness.lanes[0].did, harness.calls.ends]


def test_a_call_that_does_not_return_is_an_orphan(harness: CallsHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane's successor can call at once; parked steps are dropped, and the orphan's end is still awaited."""
    monkeypatch.setattr("app.watchdog.GRACE_SECONDS", 0.0)
    lane, taken, inside = harness.lane(), list[int](), threading.Event()

    def waits() -> None:
        with in_time(0.0, "commit_transaction"):
            inside.set()
            harness.lanes[0].waits()

    harness.calls.start(lane, cast("Any", waits))
    harness.calls.step(lane, lambda _: taken.append(1))
    assert inside.wait(PATIENCE)
    harness.clock.now += 2 * HANGS_SECONDS

    harness.until(lambda: bool(harness.successors()))
    (successor,) = harness.replaced
    assert ["commit_transaction (0 s) hangs"] == harness.lanes[0].did
    assert lane not in harness.calls
    assert successor not in harness.calls
    assert [False] == [end.done() for end in harness.calls.ends]
    harness.lanes[0].let_go.set()
    harness.until(lambda: all(end.done() for end in harness.calls.ends))

    assert [] == taken
    assert [] == harness.calls.replace_overdue()
