"""
Times the planner on clusters that are too large for a test machine.

Usage: python -m tests.bench.planner [--partitions N] [--slots N]
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from app.driver.plan import plan
from app.model import OffsetRange, Partition
from tests.bench.report import markdown


def main() -> None:
    """Print a table with one row per kind of load."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.planner", description=__doc__.splitlines()[1])
    options.add_argument("--partitions", type=int, default=10_000, help="default: %(default)s")
    options.add_argument("--slots", type=int, default=2_000, help="default: %(default)s")
    given = options.parse_args()
    plans = {name: planned(loads(given.partitions), given.slots) for name, loads in LOADS.items()}
    cells = [[name, f"{found.seconds:.3f} s", f"{found.excess:.1%}"] for name, found in plans.items()]
    print(markdown(["load", "time to plan", "busiest task above the least possible"], cells))


class Planned(NamedTuple):
    """
    The quality of a plan.

    Args:
        seconds: how long planning took.
        excess: by which fraction the load of the busiest task exceeds the lower bound of any plan.
    """

    seconds: float
    excess: float


def even(partitions: int) -> dict[Partition, int]:
    """Return partitions with similar loads."""
    rng = random.Random(1)
    return {Partition("raw", number): rng.randint(90_000, 110_000) for number in range(partitions)}


def skewed(partitions: int) -> dict[Partition, int]:
    """Return many light partitions and a few heavy ones (log-normal)."""
    rng = random.Random(1)
    return {Partition("raw", number): round(rng.lognormvariate(10, 0.4)) for number in range(partitions)}


def idle(partitions: int) -> dict[Partition, int]:
    """Return partitions, nine in ten of them idle."""
    rng = random.Random(1)
    return {Partition("raw", number): 100_000 if rng.random() < 0.1 else 0 for number in range(partitions)}


LOADS: dict[str, Callable[[int], dict[Partition, int]]] = {"even": even, "skewed": skewed, "mostly idle": idle}


def planned(loads: Mapping[Partition, int], slots: int) -> Planned:
    """Plan a round. Return how long that took and how good the plan is."""
    ranges = [OffsetRange(partition, 0, 0) for partition in loads]
    began = time.perf_counter()
    tasks = plan(ranges, loads, slots)
    seconds = time.perf_counter() - began
    return Planned(seconds, excess([[loads[offset_range.partition] for offset_range in task] for task in tasks]))


def excess(tasks: Sequence[Sequence[int]]) -> float:
    """Return how far the busiest task exceeds the lower bound, the larger of the mean and the heaviest partition."""
    least = max(sum(map(sum, tasks)) / len(tasks), *(max(task) for task in tasks))
    return max(map(sum, tasks)) / least - 1


if __name__ == "__main__":
    main()
