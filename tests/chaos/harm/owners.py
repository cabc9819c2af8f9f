"""Starts a second service in the group."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from tests.chaos.cluster import System, until
from tests.chaos.harm.base import expect_progress
from tests.chaos.load import Load
from tests.chaos.views import expect_agreement

DECISION_SECONDS = 300.0
"""How long two services may need until one of them ends."""
REFUSED = 3
SETTLE_SECONDS = 15.0
"""How long the service is watched: it looks every 10 s who else works."""


@contextmanager
def other_sink(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Start a service with the same group and another sink; it must not take a single line."""
    topic = f"{system.name}.other"
    if topic not in system.broker.admin().list_topics(timeout=30).topics:
        system.broker.create_topic(topic, system.size.partitions, replication=system.size.brokers)
    older = system.driver
    yield _start_second(system, {"sink": {"topic": topic}})
    _await_decision(system)
    if system.drivers[-1] is not older:
        intruder = system.driver
        intruder.kill()
        system.end_driver(intruder)
    _go_on(system)


@contextmanager
def equal_twin(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Start a service that is equal to the first; the older one must give way."""
    yield _start_second(system)
    _await_decision(system)
    while len(system.drivers) > 1:
        older = system.drivers[0]
        older.kill()
        system.end_driver(older)
    _go_on(system)


@contextmanager
def until_end_beside(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Run a backfill beside the service: it must refuse, and the service goes on."""
    service = system.driver
    code, _, words = system.command("run", "--until-end")
    system.recorder.record("said", service_event="the backfill ended", service_error=words.rpartition("\n")[2])
    yield f"exit code {code}"
    if code != REFUSED or until(lambda: not service.alive, SETTLE_SECONDS):
        what = f"the backfill ended with {code}, the service {'goes on' if service.alive else 'has ended'}"
        system.recorder.record("seen", anomaly="displaced", what=what)
    _go_on(system)


def _start_second(system: System, config: Mapping[str, object] = MappingProxyType({})) -> str:
    second = system.start_driver(config=config, spark={} if system.spark else {"spark.master": "local[1]"})
    return str(second.pid)


def _await_decision(system: System) -> None:
    expect_agreement(system, system.drivers[0], "beside a second service")
    until(lambda: not all(driver.alive for driver in system.drivers), DECISION_SECONDS)
    system.bury_drivers()


def _go_on(system: System) -> None:
    system.revive()
    expect_progress(system, range(system.partitions), "after one of two services has ended")
