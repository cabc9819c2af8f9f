"""Changes what the source holds: more partitions, other lines."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.chaos.cluster import System, until
from tests.chaos.harm.base import PATIENCE, Harm, expect_progress, find_processes, source_ends
from tests.chaos.load import Load

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


ANYWHERE: Mapping[str, Harm] = {
    "partitions added": partitions_added,
    "only bad lines": only_bad_lines,
}
