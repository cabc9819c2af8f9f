"""Lets services of later generations take over from the running one, and one of an earlier generation stand by."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.chaos.cluster import System, kill, until
from tests.chaos.driver import Driver
from tests.chaos.failpoints import Failpoints
from tests.chaos.harm.base import Missed, expect_progress
from tests.chaos.load import Load
from tests.chaos.views import expect_agreement

HANDOVER_SECONDS = 300.0
"""Spark's start takes most of it. Where nothing fences the earlier service, it ends a minute after the take-over."""
AROUND_SECONDS = 5.0
"""How long before and after the end of the earlier service readers are watched apart: Spark's start is over by then."""
OUTAGE_SECONDS = 75.0
"""Longer than the minute of silence after which another service counts as gone."""
WATCH_SECONDS = 30.0
"""How long the service that stands by is watched after its outage: three of its looks."""
STANDS_BY = "standing_by"
KAFKA_IS_BACK, FENCED = "kafka_available", "partitions_fenced"
STOPPED, CAUSE = "stopped", "taken over by "
AFTER_THE_FENCE = "after-init"


@contextmanager
def later(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Start a service of the next generation; the running one must end with 0 and name it."""
    began = system.recorder.now
    yield str(_start(system).pid)
    _expect_handover(system, began)


@contextmanager
def worker_killed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill a worker of the later service when it has fenced a partition, before it commits there."""
    began = system.recorder.now
    newer = _start(system)
    killed = kill_after_the_fence(newer.pid, Failpoints(system.points))
    yield str(newer.pid)
    _expect_handover(system, began)
    _require(killed)


@contextmanager
def service_killed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Kill the later service in the middle of its take-over, and start it again as Kubernetes would."""
    began = system.recorder.now
    newer = _start(system)
    killed = kill_after_the_fence(newer.pid, Failpoints(system.points))
    newer.kill()
    yield str(newer.pid)
    system.end_driver(newer)
    system.start_driver()
    _expect_handover(system, began)
    _require(killed)


@contextmanager
def two_at_once(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Start services of the next two generations at the same time; only the last one may go on."""
    began = system.recorder.now
    first, second = _start(system), _start(system)
    yield f"{first.pid} {second.pid}"
    until(lambda: not system.drivers[0].alive, HANDOVER_SECONDS)
    if not until(lambda: not first.alive, AROUND_SECONDS):  # it came too late to take anything, and stands by
        first.terminate()
        system.end_driver(first)
    _expect_handover(system, began)


@contextmanager
def stand_by_through_an_outage(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """
    Start the earlier generation again, and take Kafka away from both; it must leave the later one its work.

    It sees no commit of the other for longer than the time after which a service counts as gone.
    """
    began = system.recorder.now
    _start(system)
    _expect_handover(system, began)
    works = system.driver
    stands_by = system.start_driver(config={"generation": system.generation - 1})
    assert until(lambda: any(STANDS_BY == each["event"] for each in stands_by.events), HANDOVER_SECONDS), (
        "it does not stand by"
    )
    with system.proxy.dropping():
        yield str(stands_by.pid)
        time.sleep(OUTAGE_SECONDS)
    until(lambda: stands_by.logged(KAFKA_IS_BACK) or not stands_by.alive, HANDOVER_SECONDS)
    if until(lambda: stands_by.java or works.logged(FENCED) or not works.alive, WATCH_SECONDS):
        what = "the service that stood by went to work beside the living one"
        system.recorder.record("seen", anomaly="displaced", what=what)
    expect_progress(system, range(system.partitions), "beside a service that stands by")
    stands_by.kill()
    system.end_driver(stands_by)


def kill_after_the_fence(driver: int, points: Failpoints) -> bool:
    """
    Kill a worker of this driver between a fence and its first commit; return whether one came there in time.

    Workers of the earlier service pass the point, too, when they replace a producer after a slow commit: they are spared.
    """
    points.arm(AFTER_THE_FENCE, signal.SIGSTOP)
    while pid := points.await_hit(AFTER_THE_FENCE, HANDOVER_SECONDS):
        with contextlib.suppress(psutil.NoSuchProcess):
            worker = psutil.Process(pid)
            if driver in [each.pid for each in worker.parents()]:
                kill(worker)
                return True
            until(lambda: worker.status() == psutil.STATUS_STOPPED, AROUND_SECONDS)  # noqa: B023  # it is asked now
            worker.send_signal(signal.SIGCONT)
        points.arm(AFTER_THE_FENCE, signal.SIGSTOP)
    return False


def _require(killed: bool) -> None:
    if not killed:
        message = "no worker of the later service was killed after its fence"
        raise Missed(message)


def _start(system: System) -> Driver:
    system.generation += 1
    return system.start_driver()


def _expect_handover(system: System, began: float) -> None:
    """Wait until all services but the last have ended as they should, and the last one works; record who waited."""
    earlier, recorder = system.drivers[:-1], system.recorder
    until(lambda: not any(driver.alive for driver in earlier), HANDOVER_SECONDS)
    handed_over = recorder.now
    for driver in earlier:
        if why := _what_is_wrong(driver):
            recorder.record("seen", anomaly="crashed", what=why)
        system.end_driver(driver)
    expect_progress(system, range(system.partitions), "after a take-over")
    time.sleep(max(0.0, handed_over + AROUND_SECONDS - recorder.now))
    for since in (began, handed_over - AROUND_SECONDS):
        recorder.record("harmed", since=max(began, since), partitions=[])
    expect_agreement(system, system.driver, "after a take-over")


def _what_is_wrong(driver: Driver) -> str:
    """Return what an earlier service did wrong at its end; empty if it ended as it should."""
    if driver.alive:
        return "the earlier service goes on"
    code, stopped = driver.code(), driver.logged(STOPPED)
    causes = [event["cause"] for event in stopped]
    as_it_should = code == 0 and any(cause.startswith(CAUSE) for cause in causes)
    return "" if as_it_should else f"the earlier service ended with {code} and said {causes}"
