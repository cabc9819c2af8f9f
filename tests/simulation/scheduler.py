"""
Time and threads of a simulation. One thread runs at a time, and a seed decides which.

A thread runs until it waits: for time, a lock, a future, or an answer of the model. Then the next thing on the agenda
happens: a callback of the model, or another thread's turn. Each thread is a greenlet, because a switch between threads
of the operating system takes fifty times as long.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from heapq import heappop, heappush
from queue import Empty
from typing import Any, Generic, NamedTuple, Self, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")
Act = Callable[[], object]
OVER = -1
"""The turn of a thread that has ended."""


class Killed(BaseException):
    """The thread's process was killed. Nothing happens after this point, not even clean-up."""


class Stuck(Exception):
    """The schedule takes too many steps, or nothing can happen any more."""


class Process:
    """What is killed or frozen as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.cut_off = False
        """Whether its network is down."""
        self.threads: set[Thread] = set()
        self.when_it_dies: list[Act] = []
        self.held: list[tuple[Thread | None, int, Act]] = []
        """What became due while it was frozen."""

    def __repr__(self) -> str:
        return self.name


class Thread:
    """A thread of a process."""

    __slots__ = ("_carrier", "local", "name", "process", "token")

    def __init__(self, name: str, process: Process, carrier: greenlet) -> None:
        self.name = name
        self.process = process
        self.token = 0
        """Counts its turns, so that an outdated wake-up is recognised."""
        self.local: dict[str, Any] = {}
        self._carrier = carrier

    def __str__(self) -> str:
        return f"{self.process.name}/{self.name}"

    def go_on(self) -> None:
        self._carrier.switch()


class _Carrier:
    """A greenlet that carries one thread after another, so that none ends: control would return to its parent."""

    def __init__(self, idle: list[_Carrier]) -> None:
        self.job: Callable[[], Thread]
        self.greenlet = greenlet(self._work)
        self._idle = idle

    def _work(self) -> None:
        while True:
            following = self.job()
            self._idle.append(self)
            following.go_on()


_idle: list[_Carrier] = []


def _nothing() -> None:
    """Do nothing."""


class Scheduler:
    """The agenda of one schedule. All randomness comes from `rng`."""

    def __init__(self, seed: int, most_steps: int = 200_000) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.steps = 0
        self._most_steps = most_steps
        self._agenda: list[tuple[float, float, int, Thread | None, int, Act, Process | None]] = []
        self._number = 0
        self.failure: BaseException | None = None
        """What the model or the nemesis raised, which is an error of the simulation."""
        self.outside = Process("world")
        self._main = Thread("main", self.outside, getcurrent())
        self.current = self._main

    def at(self, when: float, act: Act, process: Process | None = None) -> None:
        """Put a callback on the agenda; it must not wait. With a process, it happens only while that process runs."""
        self._number += 1
        heappush(self._agenda, (when, self.rng.random(), self._number, None, 0, act, process))

    def after(self, seconds: float, act: Act, process: Process | None = None) -> None:
        self.at(self.now + seconds, act, process)

    def _wake_at(self, when: float, thread: Thread) -> None:
        if thread.token == OVER or when == math.inf:
            return
        self._number += 1
        heappush(self._agenda, (when, self.rng.random(), self._number, thread, thread.token, _nothing, None))

    def wake(self, thread: Thread) -> None:
        """Let a thread that waits go on."""
        self._wake_at(self.now, thread)

    def refuse_if_dead(self) -> None:
        if self.current.process.dead:
            raise Killed

    def sleep(self, seconds: float) -> None:
        self.park(seconds if seconds > 0 else 0.0)

    def park(self, seconds: float | None = None) -> None:
        """Wait until woken, or until this time has passed."""
        me = self.current
        if me.process.dead:
            raise Killed
        if seconds is not None:
            self._wake_at(self.now + seconds, me)
        following = self._next()
        if following is not me:
            self.current = following
            following.go_on()
        if me.process.dead:
            raise Killed

    def _next(self) -> Thread:
        """Let everything happen that is due before the next thread's turn; return that thread."""
        agenda = self._agenda
        while agenda:
            at, _, _, thread, token, act, process = heappop(agenda)
            if thread is not None:
                if thread.token != token:
                    continue
                process = thread.process
            if process is not None and process.frozen and not process.dead:
                process.held.append((thread, token, act))
                continue
            self.now = max(self.now, at)
            self.steps += 1
            if thread is not None:
                if self.steps > self._most_steps and thread is not self._main:
                    self.wake(thread)
                    return self._give_up()
                thread.token += 1
                return thread
            if process is None or not process.dead:
                try:
                    act()
                except BaseException as error:  # noqa: BLE001  # the main thread raises it, not whoever has the baton
                    self.failure = self.failure or error
                    return self._give_up()
        return self._give_up()

    def _give_up(self) -> Thread:
        """Return to the main thread, which finds that nothing goes on."""
        self.steps = max(self.steps, self._most_steps + 1)
        self._main.token += 1
        return self._main

    @property
    def gave_up(self) -> bool:
        return self.steps > self._most_steps

    def spawn(self, process: Process, name: str, work: Callable[[], object]) -> None:
        """Start a thread. `work` must raise nothing but Killed."""
        if process.dead:
            raise Killed
        carrier = _idle.pop() if _idle else _Carrier(_idle)
        thread = Thread(name, process, carrier.greenlet)
        process.threads.add(thread)

        def job() -> Thread:
            try:
                if not process.dead:
                    work()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001  # the main thread raises it
                self.failure = self.failure or error
            process.threads.discard(thread)
            thread.token = OVER
            following = self._give_up() if self.failure else self._next()
            self.current = following
            return following

        carrier.job = job
        self._wake_at(self.now, thread)

    def kill(self, process: Process) -> None:
        """Kill a process at once; its threads unwind without effect."""
        if process.dead:
            return
        process.dead, process.frozen = True, False
        for thread in sorted(process.threads, key=lambda each: each.name):
            self.wake(thread)
        process.held.clear()
        for act in process.when_it_dies:
            act()

    def freeze(self, process: Process) -> None:
        process.frozen = True

    def thaw(self, process: Process) -> None:
        process.frozen = False
        held, process.held = process.held, []
        for thread, token, act in held:
            if thread is None:
                self.at(self.now, act, process)
            elif thread.token == token:
                self.wake(thread)

    def finish(self, processes: Iterable[Process]) -> None:
        """Kill everything and let all threads unwind."""
        self.failure = None
        processes = list(processes)
        self._most_steps = 1 << 60
        for process in processes:
            self.kill(process)
        for _ in range(100):
            if not any(process.threads for process in processes):
                return
            self.park(1.0)
        left = [f"{each.name} of {process}" for process in processes for each in process.threads]
        raise Stuck(f"these threads do not end: {left}") from self.failure

    def clock(self) -> float:
        """Return the time; a dead process does not even learn that."""
        if self.current.process.dead:
            raise Killed
        return self.now


_running: Scheduler | None = None


def running() -> Scheduler:
    """Return the scheduler of the schedule that runs now."""
    assert _running is not None, "no schedule runs"
    return _running


def use(scheduler: Scheduler | None) -> None:
    """Make this the scheduler that the replaced parts of the standard library use."""
    global _running  # noqa: PLW0603  # one schedule runs at a time in a process
    _running = scheduler


# What follows replaces parts of the standard library in the product's modules; see `tests.simulation.world`.


class SimTime:
    """Replaces the module `time`."""

    @staticmethod
    def monotonic() -> float:
        return running().clock()

    @staticmethod
    def time() -> float:
        return EPOCH + running().clock()

    @staticmethod
    def sleep(seconds: float) -> None:
        running().sleep(seconds)


EPOCH = 1_800_000_000.0


class SimLock:
    """Replaces `threading.Lock`."""

    def __init__(self) -> None:
        self._holder: Thread | None = None
        self._waiting: deque[Thread] = deque()

    def acquire(self) -> bool:
        scheduler = running()
        scheduler.refuse_if_dead()
        while self._holder is not None and not self._holder.process.dead:
            self._waiting.append(scheduler.current)
            scheduler.park()
        self._holder = scheduler.current
        return True

    def release(self) -> None:
        self._holder = None
        if self._waiting:
            running().wake(self._waiting.popleft())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimEvent:
    """Replaces `threading.Event`."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Thread] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        for thread in self._waiting:
            running().wake(thread)
        self._waiting.clear()

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = running()
        scheduler.refuse_if_dead()
        until = None if timeout is None else scheduler.now + timeout
        while not self._set:
            left = None if until is None else until - scheduler.now
            if left is not None and left <= 0:
                break
            self._waiting.append(scheduler.current)
            scheduler.park(left)
        return self._set


class SimQueue(Generic[T]):
    """Replaces `queue.SimpleQueue`, for one reader."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._news = SimEvent()

    def put(self, item: T) -> None:
        self._items.append(item)
        self._news.set()

    def get(self, timeout: float | None = None) -> T:
        if not self._news.wait(timeout):
            raise Empty
        item = self._items.popleft()
        if not self._items:
            self._news = SimEvent()
        return item


class SimCondition(SimLock):
    """Replaces `threading.Condition`, whose holder may enter it again."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._awaited: deque[SimEvent] = deque()

    def acquire(self) -> bool:
        if self._holder is not running().current:
            super().acquire()
            self._depth = 0
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth < 1:
            super().release()

    def notify(self) -> None:
        if self._awaited:
            self._awaited.popleft().set()

    def notify_all(self) -> None:
        while self._awaited:
            self.notify()

    def wait(self, timeout: float | None = None) -> bool:
        news = SimEvent()
        self._awaited.append(news)
        depth, self._depth = self._depth, 1
        self.release()
        told = news.wait(timeout)
        if not told:
            self._awaited.remove(news)
        self.acquire()
        self._depth = depth
        return told

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        until = math.inf if timeout is None else running().now + timeout
        while not (result := predicate()) and running().now < until:
            self.wait(None if timeout is None else until - running().now)
        return result


class SimFuture(Future[T]):
    """Replaces `concurrent.futures.Future`, and does without its locks."""

    def __init__(self) -> None:
        self._ended = False
        self._threads: list[Thread] = []
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._ended

    def cancel(self) -> bool:
        """Cancel nothing: a thread works on it, or soon will."""
        return False

    def set_result(self, result: T) -> None:
        self._value = result
        self._tell()

    def set_exception(self, exception: BaseException | None) -> None:
        self._error = exception
        self._tell()

    def _tell(self) -> None:
        self._ended = True
        for thread in self._threads:
            running().wake(thread)
        self._threads.clear()

    def result(self, timeout: float | None = None) -> T:
        if (error := self.exception(timeout)) is not None:
            raise error
        value: T = self._value
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        wait([self], timeout)
        if not self._ended:
            raise TimeoutError
        return self._error

    def told(self, thread: Thread) -> None:
        """Wake this thread when the future ends."""
        self._threads.append(thread)


class DoneAndNot(NamedTuple):
    done: set[Future[Any]]
    not_done: set[Future[Any]]


def wait(futures: Iterable[Future[Any]], timeout: float | None = None) -> DoneAndNot:
    """Replace `concurrent.futures.wait`."""
    scheduler, futures = running(), list(futures)
    scheduler.refuse_if_dead()
    until = None if timeout is None else scheduler.now + timeout
    while left := [each for each in futures if not each.done()]:
        seconds = None if until is None else until - scheduler.now
        if seconds is not None and seconds <= 0:
            break
        for each in left:
            assert isinstance(each, SimFuture)
            each.told(scheduler.current)
        scheduler.park(seconds)
    done = {each for each in futures if each.done()}
    return DoneAndNot(done, set(futures) - done)


class SimExecutor(Executor):
    """Replaces `ThreadPoolExecutor`, in the process that makes it."""

    def __init__(self, most: int, prefix: str) -> None:
        self._scheduler = running()
        self._process = self._scheduler.current.process
        self._most, self._prefix = most, prefix
        self._busy = self._made = 0
        self._queue: deque[tuple[SimFuture[Any], Callable[[], Any]]] = deque()
        self._futures: list[SimFuture[Any]] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: SimFuture[Any] = SimFuture()
        self._futures = [each for each in self._futures if not each.done()]
        self._futures.append(future)
        self._queue.append((future, lambda: call(*args, **named)))
        if self._busy < self._most:
            self._busy += 1
            self._made += 1
            self._scheduler.spawn(self._process, f"{self._prefix}-{self._made}", self._work)
        return future

    def _work(self) -> None:
        while self._queue:
            future, call = self._queue.popleft()
            try:
                result = call()
            except Killed:
                raise
            except BaseException as error:  # noqa: BLE001  # the caller of result() gets it
                future.set_exception(error)
            else:
                future.set_result(result)
        self._busy -= 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait:
            globals()["wait"](self._futures)

    def __enter__(self) -> Self:
        return self


class SimThread:
    """Replaces `threading.Thread`."""

    def __init__(self, target: Callable[[], object], *, daemon: bool = True, name: str = "thread") -> None:
        self._target, self._name = target, name
        self._ended = SimEvent()
        assert daemon

    def start(self) -> None:
        scheduler = running()
        scheduler.spawn(scheduler.current.process, self._name, self._run)

    def _run(self) -> None:
        self._target()
        self._ended.set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return not self._ended.is_set()


class SimLocal:
    """Replaces an instance of `threading.local`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return running().current.local[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        running().current.local[name] = value

    def __delattr__(self, name: str) -> None:
        del running().current.local[name]


class SimThreading:
    """Replaces the module `threading`."""

    Lock = SimLock
    Event = SimEvent
    Condition = SimCondition
    Thread = SimThread
