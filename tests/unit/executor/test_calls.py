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
        assert self.let_go.wait(20)
        self.writer.full = False
        if self.outcome is not None:
            raise Transient(Partition("raw", 0), "abandoned")

    def hold(self) -> None:
        self.running = None
        self.did.append("hold")

    def give_up(self, error: PartitionError, now: float) -> None:
        self.did.append("give up")

    def run(self, call: Callable[[], object], clock: Callable[[], float]) -> bool:
        try:
            call()
        except PartitionError as error:
            self.give_up(error, clock())
        self.did.append("discard")
        return "give up" not in self.did

    def successor(self, call: str, now: float) -> FakeLane:
        self.did.append(f"{call} hangs")
        return FakeLane()

    def abandon(self) -> None:
        self.outcome = Outcome.FAILED
        self.did.append("abandon")
        self.let_go.set()

    send_rest = waits


class Stage:
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
def stage() -> Iterator[Stage]:
    """Yield a stage, then release everything that hangs."""
    made = Stage()
    with made.watchdog:
        yield made
    for lane in made.lanes:
        lane.let_go.set()
    made.threads.shutdown()


def test_lanes_that_hang_take_no_thread_from_the_others(stage: Stage) -> None:
    """However many lanes hang, each other lane gets its turn as soon as those before it count as hanging."""
    for _ in range(LANES):
        stage.start(stage.lane())
    well = stage.lane()
    cast("FakeLane", well).let_go.set()
    stage.start(well)
    assert stage.calls.crowded

    stage.until(lambda: well not in stage.calls, tick=HANGS_SECONDS)

    assert not stage.calls.crowded


def test_a_lane_in_trouble_waits_in_a_queue_of_its_own(stage: Stage) -> None:
    """Its next call may well hang again, so it must not delay a healthy lane even for a moment."""
    for _ in range(LANES):
        stage.start(stage.lane(troubled=True))
    well = stage.lane()
    cast("FakeLane", well).let_go.set()
    stage.start(well)

    stage.until(lambda: well not in stage.calls)

    assert not stage.calls.crowded


def test_lanes_in_trouble_take_no_thread_from_each_other_for_long(stage: Stage) -> None:
    """However many of them hang, one that has recovered opens again."""
    for _ in range(LANES):
        stage.start(stage.lane(troubled=True))
    over = stage.lane(troubled=True)
    cast("FakeLane", over).let_go.set()
    stage.start(over)

    stage.until(lambda: over not in stage.calls, tick=HANGS_SECONDS)

    assert LANES == len(stage.calls.ends)


def test_threads_of_calls_that_hung_leave(stage: Stage) -> None:
    """When all calls continue at once, no more run in parallel than usual."""
    for _ in range(LANES):
        stage.start(stage.lane())
    stage.until(lambda: not stage.calls.crowded, tick=HANGS_SECONDS)
    for each in stage.lanes:
        each.let_go.set()
    stage.until(lambda: not stage.calls.ends)
    at_once, most, lock = 0, 0, threading.Lock()

    def counted() -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.005)
        with lock:
            at_once -= 1

    for _ in range(2 * LANES):
        stage.calls.start(stage.lane(), cast("Any", counted))
    stage.until(lambda: not stage.calls.ends)

    assert most == SIDE_BY_SIDE


@pytest.mark.parametrize(("lanes", "threads"), [(3, 3), (LANES, SIDE_BY_SIDE)])
def test_there_are_as_many_threads_as_calls_may_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, lanes: int, threads: int
) -> None:
    """No thread is started that would find nothing to do."""
    begun = list[object]()
    monkeypatch.setattr(stage.threads, "submit", begun.append)

    for _ in range(lanes):
        stage.start(stage.lane())
    stage.calls.settle_ended()

    assert threads == len(begun)


def test_the_steps_of_a_lane_are_taken_in_order(stage: Stage) -> None:
    """Steps wait for the call of their lane, and none is lost."""
    lane, taken = stage.lane(), list[int]()
    stage.start(lane)
    for number in range(MAX_PARKED):
        stage.calls.step(lane, lambda _, number=number: taken.append(number))  # type: ignore[misc]
    assert [] == taken
    stage.lanes[0].let_go.set()

    stage.until(lambda: lane not in stage.calls)
    stage.calls.step(lane, lambda _: taken.append(MAX_PARKED))

    assert list(range(MAX_PARKED + 1)) == taken


@pytest.mark.parametrize("troubled", [True, False])
def test_where_too_many_steps_wait_the_lane_that_hangs_is_held(stage: Stage, *, troubled: bool) -> None:
    """Its steps are dropped and reading it stops; the steps of the others continue, and nothing waits."""
    hangs = stage.lane(troubled=troubled)
    if troubled:
        stage.start(hangs)
    else:
        stage.hanging(hangs)
    well, taken = stage.lane(), list[str]()
    for _ in range(MAX_PARKED):
        stage.calls.step(hangs, lambda _: taken.append("of the lane that hangs"))
    stage.start(well)
    stage.calls.step(well, lambda _: taken.append("well"))
    stage.calls.step(hangs, lambda _: taken.append("of the lane that hangs"))
    stage.lanes[1].let_go.set()

    stage.until(lambda: well not in stage.calls)

    assert ["hold"] == stage.lanes[0].did
    assert ["well"] == taken


def test_where_too_many_steps_wait_for_calls_that_do_not_hang_the_task_waits(stage: Stage) -> None:
    """It takes no more than it can write, and reads no partition twice."""
    one, other, taken = stage.lane(), stage.lane(), list[int]()
    stage.start(one)
    stage.start(other)
    for number in range(MAX_PARKED):
        stage.calls.step(one, lambda _, number=number: taken.append(number))  # type: ignore[misc]
    threading.Timer(0.1, stage.lanes[1].let_go.set).start()

    stage.calls.step(other, lambda _: taken.append(99))

    assert [99] == taken
    assert [[], ["discard"]] == [lane.did for lane in stage.lanes]


def test_what_finds_no_room_is_sent_beside_the_flow(stage: Stage) -> None:
    """A lane with a full output queue waits for room in a thread, and its next steps wait with it."""
    lane, taken = stage.lane(), list[int]()

    def fill(_: Ready) -> None:
        stage.lanes[0].writer.full = True

    stage.calls.step(lane, fill)
    stage.calls.step(lane, lambda _: taken.append(1))
    assert lane in stage.calls
    assert [] == taken
    stage.lanes[0].let_go.set()
    stage.until(lambda: lane not in stage.calls)

    assert [1] == taken


def test_at_the_end_calls_that_hang_are_abandoned(stage: Stage) -> None:
    """The others finish; what hangs is abandoned after its time, and what waits for a thread is not started."""
    hanging = [stage.hanging(stage.lane()) for _ in range(3)]
    well = stage.lane()
    threading.Timer(0.1, cast("FakeLane", well).let_go.set).start()
    stage.start(well)

    stage.calls.settle()
    assert hanging == [each for each in (*hanging, well) if each in stage.calls]
    stage.clock.now += 10
    stage.calls.abandon(2.0)

    assert [["abandon", "give up", "discard"]] * 3 + [["discard"]] == [lane.did for lane in stage.lanes]
    assert [] == stage.calls.ends


@pytest.mark.parametrize("troubled", [True, False])
def test_at_the_end_calls_behind_those_that_hang_have_their_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, troubled: bool
) -> None:
    """What was taken is committed, even if hanging lanes had occupied every thread."""
    for _ in range(SIDE_BY_SIDE):
        stage.start(stage.lane(troubled=troubled))
    stage.until(lambda: all(lane.began.is_set() for lane in stage.lanes))
    last = stage.lane(troubled=troubled)
    stage.lanes[-1].let_go.set()
    stage.start(last)
    *_, end = stage.calls.ends
    hang_at = stage.clock.now + 2 * HANGS_SECONDS

    def pass_by(ends: Sequence[Future[bool]], seconds: float) -> None:
        if stage.clock.now >= hang_at:
            wait([end], 2)
        stage.clock.now += HANGS_SECONDS

    monkeypatch.setattr("app.executor.calls.wait", pass_by)
    stage.calls.abandon(6 * HANGS_SECONDS)

    assert ["discard"] == stage.lanes[-1].did
    assert all("abandon" in lane.did for lane in stage.lanes[:-1])


def test_what_was_abandoned_is_not_waited_for_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task abandons hanging calls before its receipts and again when it closes; the second time costs nothing."""
    stage.hanging(stage.lane())
    abandoned, waited = list[str](), list[Future[bool]]()
    monkeypatch.setattr(stage.lanes[0], "abandon", lambda: abandoned.append("abandon"))
    monkeypatch.setattr("app.executor.calls.wait", lambda ends, _seconds: waited.extend(ends))

    stage.calls.abandon(0.0)
    assert (1, ["abandon"]) == (len(waited), abandoned)
    stage.calls.settle()
    stage.calls.abandon(2.0)

    assert (1, ["abandon"]) == (len(waited), abandoned)


@pytest.mark.parametrize("troubled", [True, False])
def test_at_the_end_calls_without_a_thread_are_not_begun(stage: Stage, *, troubled: bool) -> None:
    """Their lanes end with what is committed."""
    for _ in range(SIDE_BY_SIDE):
        stage.start(stage.lane(troubled=troubled))
    stage.until(lambda: all(lane.began.is_set() for lane in stage.lanes))
    stage.start(stage.lane(troubled=troubled))
    stage.calls.abandon(0.0)

    assert [] == stage.lanes[-1].did
    assert [] == stage.calls.ends


def test_a_call_that_fails_gives_its_lane_up_in_its_thread(stage: Stage) -> None:
    """Discarding a producer may take as long as any other call."""
    lane = stage.lane()
    stage.lanes[0].outcome = Outcome.FAILED
    stage.lanes[0].let_go.set()
    stage.start(lane)

    stage.until(lambda: lane not in stage.calls)

    assert ["give up", "discard"] == stage.lanes[0].did


def test_a_moment_is_given_only_to_calls_that_do_not_hang(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for hanging calls would cost the record flow a moment in each pass."""
    stage.hanging(stage.lane())
    well, waited = stage.lane(), list[object]()
    stage.start(well)
    _, end_of_well = stage.calls.ends
    monkeypatch.setattr("app.executor.calls.wait", lambda ends, seconds: waited.extend(ends))

    stage.calls.settle_soon()

    assert [end_of_well] == waited


@pytest.mark.parametrize(("has_taken", "waits"), [(0.0, 2.0), (1.5, 0.5), (3.0, 0.0)])
def test_a_call_has_its_time_before_it_is_abandoned(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, has_taken: float, waits: float
) -> None:
    """The time it has already taken counts; then its thread gets a moment to return."""
    lane = stage.lane()
    stage.start(lane)
    stage.until(stage.lanes[0].began.is_set)
    stage.clock.now += has_taken
    began, abandoned_at = stage.clock.now, list[float]()
    monkeypatch.setattr(stage.lanes[0], "abandon", lambda: abandoned_at.append(stage.clock.now))

    def pass_by(ends: object, seconds: float) -> None:
        stage.clock.now += 0.25

    monkeypatch.setattr("app.executor.calls.wait", pass_by)
    stage.calls.abandon(2.0)

    assert [began + waits] == abandoned_at


@pytest.mark.timeout(10)
def test_the_task_is_alive_while_it_waits_for_lanes_to_open(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits without polling, and feeds the watchdog, because opening hundreds of lanes may outlast it."""
    fed, waited = list[float](), list[float]()
    monkeypatch.setattr(stage.watchdog, "feed", lambda: fed.append(stage.clock.now))

    def pass_by(ends: object, seconds: float) -> None:
        stage.clock.now += 0.25
        waited.append(stage.clock.now)

    stage.start(stage.lane())
    monkeypatch.setattr("app.executor.calls.wait", pass_by)
    began = stage.clock.now
    stage.calls.settle_while_some_end(1.0)

    assert [began + 0.25, began + 0.5, began + 0.75, began + 1.0] == waited
    assert [began, *waited[:3]] == fed


def test_lanes_that_open_one_after_the_other_are_waited_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that ends shows that Kafka responds, so the others get their full time again."""
    closed = [stage.lane() for _ in range(4)]
    for lane in closed:
        stage.start(lane)
    left = list(zip(stage.lanes, stage.calls.ends, strict=True))

    def pass_by(ends: Sequence[Future[bool]], seconds: float) -> None:
        stage.clock.now += 0.75
        lane, end = left.pop()
        lane.let_go.set()
        wait([end])

    monkeypatch.setattr("app.executor.calls.wait", pass_by)
    stage.calls.settle_while_some_end(1.0)

    assert [] == stage.calls.ends


def test_a_call_that_ends_in_its_time_is_not_abandoned(stage: Stage) -> None:
    """Its lane continues with the result."""
    lane = stage.lane()
    stage.start(lane)
    threading.Timer(0.05, stage.lanes[0].let_go.set).start()

    stage.calls.abandon(2.0)

    assert [["discard"], []] == [stage.lanes[0].did, stage.calls.ends]


def test_a_call_that_does_not_return_is_an_orphan(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane's successor can call at once; parked steps are dropped, and the orphan's end is still awaited."""
    monkeypatch.setattr("app.watchdog.GRACE_SECONDS", 0.0)
    lane, taken, inside = stage.lane(), list[int](), threading.Event()

    def waits() -> None:
        with in_time(0.0, "commit_transaction"):
            inside.set()
            stage.lanes[0].waits()

    stage.calls.start(lane, cast("Any", waits))
    stage.calls.step(lane, lambda _: taken.append(1))
    assert inside.wait(20)
    stage.clock.now += 2 * HANGS_SECONDS

    stage.until(lambda: bool(stage.successors()))
    (successor,) = stage.replaced
    assert ["commit_transaction (0 s) hangs"] == stage.lanes[0].did
    assert lane not in stage.calls
    assert successor not in stage.calls
    assert [False] == [end.done() for end in stage.calls.ends]
    stage.lanes[0].let_go.set()
    stage.until(lambda: all(end.done() for end in stage.calls.ends))

    assert [] == taken
    assert [] == stage.calls.replace_overdue()
