"""Kills the node that alone holds some partitions: these have no leader then, and the others must go on."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.cluster import LONE, System
from tests.chaos.harm.base import bring_back, expect_progress
from tests.chaos.harm.processes import end_drivers
from tests.chaos.load import Load
from tests.chaos.views import expect_agreement


@contextmanager
def of_the_source(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Take the leader of two source partitions away, for 20 to 40 s and until a new driver has begun without them."""
    node = _kill(system, "source")
    since = system.recorder.now
    yield f"node {node}"
    time.sleep(rng.uniform(20, 40))
    _note_harmed(system, "source", since)
    expect_agreement(system, system.driver, "source partitions without a leader")
    end_drivers(system)
    system.start_driver()
    _expect_the_others(system, "source")
    _heal(system, node)


@contextmanager
def of_the_sink(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Take the leader of a sink partition away, for 20 to 60 s."""
    node = _kill(system, "sink")
    since = system.recorder.now
    yield f"node {node}"
    time.sleep(rng.uniform(20, 60))
    _note_harmed(system, "sink", since)
    _expect_the_others(system, "sink")
    expect_agreement(system, system.driver, "a sink partition without a leader")
    _heal(system, node)


def _kill(system: System, role: str) -> int:
    """Kill the node that alone holds the lone partitions of a role; return it."""
    system.broker.kill(LONE[role].node)
    return LONE[role].node


def _note_harmed(system: System, role: str, since: float) -> None:
    system.recorder.record("harmed", since=since, partitions=LONE[role].partitions)


def _expect_the_others(system: System, role: str) -> None:
    lone = LONE[role].partitions
    spared = [number for number in range(system.partitions) if number not in lone]
    expect_progress(system, spared, f"beside the {role}'s leaderless partitions {lone}")


def _heal(system: System, node: int) -> None:
    bring_back(system, node)
    expect_progress(system, range(system.partitions), f"after node {node} is back")
