"""Kills and stops workers, executors, Spark and drivers, and runs some of them twice."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil

from tests.chaos.cluster import System, kill, stopped, until
from tests.chaos.failpoints import POINTS, Failpoints
from tests.chaos.grouped import NOBODY
from tests.chaos.harm.base import BEYOND_THE_TIMEOUT, PROGRESS_SECONDS, Harm, Missed, choose, find_processes
from tests.chaos.load import Load


@contextmanager
def worker_killed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill a Python worker."""
    if victim := choose(rng, lambda: system.workers):
        kill(victim)
    yield str(victim.pid if victim else NOBODY)


@contextmanager
def worker_stopped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Stop a Python worker for longer than the transaction timeout."""
    victim = choose(rng, lambda: system.workers)
    with stopped(victim) if victim else contextlib.nullcontext():
        yield str(victim.pid if victim else NOBODY)
        time.sleep(BEYOND_THE_TIMEOUT)


@contextmanager
def executor_killed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill the JVM of an executor; its Python workers become orphans."""
    if victim := choose(rng, lambda: system.executors):
        kill(victim)
    yield str(victim.pid if victim else NOBODY)


@contextmanager
def executor_stopped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Stop the JVM of an executor until the driver gives it up; its Python worker continues."""
    victim = choose(rng, lambda: system.executors)
    with stopped(victim) if victim else contextlib.nullcontext():
        yield str(victim.pid if victim else NOBODY)
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
    restart_driver(system)


@contextmanager
def driver_killed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill the driver; start another."""
    yield str(system.driver.pid)
    restart_driver(system)


@contextmanager
def driver_with_other_parallelism(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill the driver; start another with fewer slots."""
    cores = rng.randint(1, 2)
    yield f"{cores} slots"
    restart_driver(system, {"spark.cores.max": str(cores)} if system.spark else {"spark.master": f"local[{cores}]"})


def restart_driver(system: System, spark: Mapping[str, object] | None = None) -> None:
    """Kill the driver, start another, and wait until its tasks run."""
    end_drivers(system)
    system.start_driver(spark=spark or {})
    find_processes(lambda: system.workers)


def end_drivers(system: System) -> None:
    """Kill all drivers, except those that have ended by themselves."""
    system.bury_drivers()
    for driver in list(system.drivers):
        driver.kill()
        system.end_driver(driver)


@contextmanager
def driver_stopped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Stop the driver's Python for longer than a round."""
    with stopped(psutil.Process(system.driver.pid)):
        yield str(system.driver.pid)
        time.sleep(BEYOND_THE_TIMEOUT)


@contextmanager
def second_driver(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Start a second driver while the first runs; after a while kill one of them."""
    second = system.start_driver(spark={} if system.spark else {"spark.master": "local[1]"})
    yield str(second.pid)
    time.sleep(rng.uniform(15, 25))
    system.bury_drivers()  # the older of two equal services may have left by itself
    if len(system.drivers) > 1:
        loser = rng.choice(system.drivers)
        loser.kill()
        system.end_driver(loser)


@contextmanager
def duplicate_attempt(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """
    Run a second attempt on two partitions for a few seconds, as speculative execution would.

    On a busy machine the next round may fence one before it has committed anything. Then another one follows.
    """
    partitions = rng.sample(range(system.size.partitions), 2)
    command = [sys.executable, "-m", "tests.chaos.duplicate_attempt", system.driver.file, str(rng.uniform(2, 6))]

    def has_committed() -> bool:
        return 0 == subprocess.call([*command, *map(str, partitions)], cwd=system.code, timeout=PROGRESS_SECONDS)

    yield f"partitions {partitions}"
    if not until(has_committed, PROGRESS_SECONDS):
        message = "no attempt has committed anything"
        raise Missed(message)


def _at(point: str, number: signal.Signals) -> Harm:
    @contextmanager
    def hit(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        points = Failpoints(system.points)
        points.arm(point, number)
        if point.endswith("init") and (other := choose(rng, lambda: system.workers)):
            kill(other)  # lanes are opened at the begin of a round, which goes on for minutes, and by a retry
        pid = points.await_hit(point, PROGRESS_SECONDS)
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
}
ON_A_CLUSTER: Mapping[str, Harm] = {
    "executor killed": executor_killed,
    "executor stopped": executor_stopped,
    "Spark worker killed": spark_worker_killed,
    "Spark master killed": master_killed,
}
