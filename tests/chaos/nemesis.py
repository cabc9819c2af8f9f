"""
Injects faults: seeded, recorded, one at a time.

A fault is a context manager: entering it does the harm and yields the target; leaving it repairs the harm. A fault
that needs no repair (Spark replaces a killed worker) ends at once.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import psutil

from tests.chaos.cluster import ROOT, TRANSACTION_SECONDS, System, kill, stopped, until
from tests.chaos.failpoints import POINTS, Failpoints
from tests.chaos.load import Load
from tests.chaos.proxy import END_TXN, TXN_OFFSET_COMMIT

Harm = Callable[[System, Load, random.Random], AbstractContextManager[str]]
BEYOND_THE_TIMEOUT = TRANSACTION_SECONDS + 2.0
PATIENCE = 60.0
POLL_SECONDS = 0.25
"""Listing processes costs tens of milliseconds."""
NOBODY = "nobody"


def _victim(rng: random.Random, find: Callable[[], Sequence[psutil.Process]]) -> psutil.Process | None:
    """Choose one of the processes; wait until there are some. None if none appear."""
    found = _await(find)
    return rng.choice(found) if found else None


def _await(find: Callable[[], Sequence[psutil.Process]]) -> Sequence[psutil.Process]:
    """Wait until there are such processes, and return them; empty if none appear in time."""
    deadline = time.monotonic() + PATIENCE
    while not (found := find()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return found


@contextmanager
def worker_killed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill a Python worker."""
    if victim := _victim(rng, lambda: system.workers):
        kill(victim)
    yield str(victim and victim.pid)


@contextmanager
def worker_stopped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Stop a Python worker for longer than the transaction timeout."""
    victim = _victim(rng, lambda: system.workers)
    with stopped(victim) if victim else contextlib.nullcontext():
        yield str(victim and victim.pid)
        time.sleep(BEYOND_THE_TIMEOUT)


@contextmanager
def executor_killed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill the JVM of an executor; its Python workers become orphans."""
    if victim := _victim(rng, lambda: system.executors):
        kill(victim)
    yield str(victim and victim.pid)


@contextmanager
def executor_stopped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Stop the JVM of an executor until the driver gives it up; its Python worker continues."""
    victim = _victim(rng, lambda: system.executors)
    with stopped(victim) if victim else contextlib.nullcontext():
        yield str(victim and victim.pid)
        time.sleep(24)


@contextmanager
def spark_worker_killed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill a Spark worker daemon, and so its executor; start it again."""
    assert system.spark is not None
    number = rng.randrange(system.size.workers)
    kill(system.spark.process(f"worker-{number}"))
    yield f"worker-{number}"
    time.sleep(rng.uniform(0.5, 3))
    system.spark.start_worker(number)


@contextmanager
def master_killed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill the Spark master; tasks go on. The new master does not know the application, so the driver is restarted too."""
    assert system.spark is not None
    kill(system.spark.process("master"))
    yield "master"
    time.sleep(rng.uniform(0.5, 3))
    system.spark.start_master()
    time.sleep(5)
    _restart_driver(system)


@contextmanager
def driver_killed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill the driver; start another."""
    yield str(system.driver.pid)
    _restart_driver(system)


@contextmanager
def driver_with_other_parallelism(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill the driver; start another with fewer slots."""
    cores = rng.randint(1, 2)
    yield f"{cores} slots"
    _restart_driver(system, **{"spark.cores.max": str(cores)} if system.spark else {"spark.master": f"local[{cores}]"})


def _restart_driver(system: System, **spark: object) -> None:
    """Kill the driver, start another, and wait until its tasks run."""
    system.driver.kill()
    system.end_driver(system.driver)
    system.start_driver(**spark)
    _await(lambda: system.workers)


@contextmanager
def driver_stopped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Stop the driver's Python for longer than a round."""
    with stopped(psutil.Process(system.driver.pid)):
        yield str(system.driver.pid)
        time.sleep(BEYOND_THE_TIMEOUT)


@contextmanager
def second_driver(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Start a second driver while the first runs: the first ends by itself. If it does not in time, it is killed."""
    first = system.driver
    second = system.start_driver(**{} if system.spark else {"spark.master": "local[1]"})
    yield str(second.pid)
    if not until(lambda: not first.alive, PATIENCE):
        first.kill()
    system.end_driver(first)


@contextmanager
def duplicate_attempt(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Run a second attempt on two partitions for a few seconds, as speculative execution would."""
    partitions = rng.sample(range(system.size.partitions), 2)
    command = [sys.executable, "-m", "tests.chaos.duplicate_attempt", system.driver.file, str(rng.uniform(2, 6))]
    running = subprocess.Popen([*command, *map(str, partitions)], cwd=ROOT)
    yield f"partitions {partitions}"
    running.wait(PATIENCE)


def _broker_down(choose: Callable[[System, random.Random], int], *, hard: bool) -> Harm:
    @contextmanager
    def down(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        node = choose(system, rng)
        (system.broker.kill if hard else system.broker.stop)(node)
        yield f"node {node}"
        time.sleep(rng.uniform(0, 6))
        system.broker.start(node)
        until(lambda: system.broker.in_sync, PATIENCE)

    return down


def _any_node(system: System, rng: random.Random) -> int:
    return rng.choice(system.broker.nodes)


def _transaction_coordinator(system: System, rng: random.Random) -> int:
    return system.transaction_coordinator(rng.randrange(system.size.partitions))


def _group_coordinator(system: System, rng: random.Random) -> int:
    return system.group_coordinator()


@contextmanager
def broker_stopped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Stop a broker by SIGSTOP until the others take over; it resumes with old requests in its queues."""
    node = _any_node(system, rng)
    with stopped(system.broker.process(node)):
        yield f"node {node}"
        time.sleep(rng.uniform(6, BEYOND_THE_TIMEOUT))
    until(lambda: system.broker.in_sync, PATIENCE)


@contextmanager
def connections_cut(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Cut all connections between the service and Kafka, a few times."""
    yield "all"
    for _ in range(rng.randint(1, 5)):
        system.proxy.cut()
        time.sleep(rng.uniform(0.1, 1))


@contextmanager
def connections_delayed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Delay each request."""
    system.proxy.delay = rng.uniform(0.02, 0.5)
    yield f"{system.proxy.delay:.2f} s"
    time.sleep(rng.uniform(3, 8))
    system.proxy.delay = 0


@contextmanager
def connections_dropped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Drop all traffic between the service and Kafka for a while, then cut the connections."""
    system.proxy.dropping = True
    yield "all"
    time.sleep(rng.uniform(2, 20))
    system.proxy.dropping = False
    system.proxy.cut()


def _held(held: int) -> Harm:
    @contextmanager
    def hold(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        """Cut connections while such a request is in flight, and deliver it after the next transaction has begun."""
        system.proxy.hold_seconds = lambda api: rng.uniform(0.2, 2) if api == held and rng.random() < 0.3 else None
        yield "a third of the commits"
        time.sleep(8)
        system.proxy.hold_seconds = lambda api: None

    return hold


@contextmanager
def partitions_added(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Add partitions to the source topic."""
    load.partitions = system.add_partitions(2)
    yield f"{load.partitions} partitions"


@contextmanager
def only_bad_lines(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Write only lines that must be rejected."""
    usual, load.bad = load.bad, 1.0
    yield "all partitions"
    time.sleep(5)
    load.bad = usual


def _at(point: str, number: signal.Signals) -> Harm:
    @contextmanager
    def hit(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        points = Failpoints(system.points)
        points.arm(point, number)
        pid = points.await_hit(point, PATIENCE)
        yield str(pid or NOBODY)
        if pid and number == signal.SIGSTOP:
            time.sleep(BEYOND_THE_TIMEOUT)
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).send_signal(signal.SIGCONT)

    return hit


FAILPOINTS: Mapping[str, Harm] = {
    f"{'killed' if number == signal.SIGKILL else 'stopped'} {point}": _at(point, number)
    for point in POINTS
    for number in (signal.SIGKILL, signal.SIGSTOP)
}
ANYWHERE: Mapping[str, Harm] = {
    "worker killed": worker_killed,
    "worker stopped": worker_stopped,
    "driver killed": driver_killed,
    "driver stopped": driver_stopped,
    "driver with other parallelism": driver_with_other_parallelism,
    "second driver": second_driver,
    "duplicate attempt": duplicate_attempt,
    "broker killed": _broker_down(_any_node, hard=True),
    "broker shut down": _broker_down(_any_node, hard=False),
    "broker stopped": broker_stopped,
    "connections cut": connections_cut,
    "connections delayed": connections_delayed,
    "connections dropped": connections_dropped,
    "EndTxn held": _held(END_TXN),
    "TxnOffsetCommit held": _held(TXN_OFFSET_COMMIT),
    "partitions added": partitions_added,
    "only bad lines": only_bad_lines,
}
ON_A_CLUSTER: Mapping[str, Harm] = {
    "executor killed": executor_killed,
    "executor stopped": executor_stopped,
    "Spark worker killed": spark_worker_killed,
    "Spark master killed": master_killed,
    "transaction coordinator killed": _broker_down(_transaction_coordinator, hard=True),
    "transaction coordinator shut down": _broker_down(_transaction_coordinator, hard=False),
    "group coordinator killed": _broker_down(_group_coordinator, hard=True),
    "group coordinator shut down": _broker_down(_group_coordinator, hard=False),
}
HARM: Mapping[str, Harm] = {**ANYWHERE, **ON_A_CLUSTER, **FAILPOINTS}
ONCE = ("partitions added",)
KILLS: Sequence[str] = [
    *["worker killed"] * 10,
    *["executor killed"] * 5,
    *["Spark worker killed"] * 3,
    *["Spark master killed"] * 1,
    *["driver killed"] * 2,
    *["broker killed"] * 3,
]
"""The kills of one turn, for runs that only kill processes."""


class Nemesis:
    """Injects one fault after the other, and records each with the state of the system."""

    def __init__(self, system: System, load: Load, rng: random.Random) -> None:
        """Prepare; nothing happens yet."""
        self._system, self._load, self._rng = system, load, rng

    def strike(self, name: str) -> None:
        """Inject a fault, and repair it."""
        recorder, state = self._system.recorder, self._system.state()
        began = recorder.now
        with HARM[name](self._system, self._load, self._rng) as target:
            recorder.record("fault", name=name, target=target, state=state, began=began)
        recorder.record("healed", name=name, target=target)
        for driver in self._system.drivers:
            driver.record_log()


def schedule(names: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Yield faults for ever: turn after turn all of them, in random order; the faults in ONCE only in the first turn."""
    pool = list(names)
    while True:
        rng.shuffle(pool)
        yield from pool
        pool = [name for name in pool if name not in ONCE] or pool


def usual(system: System) -> list[str]:
    """Return the faults that a system of this size can have."""
    return list(HARM) if system.spark else [*ANYWHERE, *FAILPOINTS]
