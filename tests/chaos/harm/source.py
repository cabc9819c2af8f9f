"""Changes what the source holds: more partitions, other lines."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.chaos.cluster import AWAY, ELSEWHERE, System, until
from tests.chaos.harm.base import PATIENCE, Harm, bring_back, expect_progress, find_processes, source_ends
from tests.chaos.load import Load
from tests.chaos.views import expect_agreement

FEW_RECORDS = 20


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


@contextmanager
def added_while_stopped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Stop the service, add partitions and write to them, start it with `starting.offsets: latest`."""
    driver = system.driver
    driver.terminate()
    system.end_driver(driver)
    before = load.partitions
    load.partitions = system.add_partitions(2)
    added = range(before, load.partitions)
    yield f"partitions {list(added)}"
    until(lambda: min(source_ends(system, added).values()) >= FEW_RECORDS, PATIENCE)
    system.start_driver(config={"starting.offsets": "latest"})
    find_processes(lambda: system.workers)
    expect_progress(system, range(system.partitions), "after partitions were added")


@contextmanager
def added_without_siblings(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """The same, while none of the other partitions has a leader: nothing is known of the topic but the group's offsets."""
    driver = system.driver
    driver.terminate()
    system.end_driver(driver)
    siblings = range(load.partitions)
    load.partitions = system.add_partitions(2, ELSEWHERE)
    system.broker.kill(AWAY)
    added = range(siblings.stop, load.partitions)
    since = system.recorder.now
    yield f"partitions {list(added)}"
    until(lambda: min(source_ends(system, added).values()) >= FEW_RECORDS, PATIENCE)
    system.start_driver(config={"starting.offsets": "latest"})
    expect_progress(system, added, "beside siblings without a leader")
    expect_agreement(system, system.driver, "siblings without a leader")
    system.recorder.record("harmed", since=since, partitions=list(siblings))
    bring_back(system, AWAY)
    expect_progress(system, range(system.partitions), "after their siblings are back")


ANYWHERE: Mapping[str, Harm] = {
    "partitions added": partitions_added,
    "only bad lines": only_bad_lines,
}
