"""
Runs simulated schedules: `make simulate SCHEDULES=n SEED=s`.

    python -m tests.simulation [--schedules N] [--seed S] [--jobs J] [--arm NAME] [--until-found] [--trace]
    python -m tests.simulation --tell S [--arm NAME]

Ends with 0 only without an anomaly. A failing schedule is shrunk and told.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.simulation import branches
from tests.simulation.arms import ARMS
from tests.simulation.runs import Plan, Report, search, shrunk, told

AT_ONCE = 250
"""How many schedules a process runs before it reports."""


def main() -> int:
    """Run and report."""
    options = _options()
    if options.tell is not None:
        print(told(Plan.of(options.tell), options.arm))
        return 0
    began = time.monotonic()
    last = options.seed + options.schedules
    with branches.traced() if options.trace else branches.untraced() as reached:
        if options.jobs == 1 or options.trace:
            report = search(range(options.seed, last), options.arm, until_found=options.until_found)
            print("".join(f"seed {seed}: {anomaly}\n" for seed, anomaly in report.failed.items()), end="")
        else:
            report = _side_by_side(options.seed, last, options.arm, options.jobs)
    for seed, anomaly in sorted(report.failed.items())[: options.told]:
        print(told(shrunk(Plan.of(seed), anomaly.name, options.arm), options.arm))
    if options.trace:
        print(branches.missed(reached))
    print(f"{report} in {time.monotonic() - began:.0f} s, from seed {options.seed}")
    return 1 if report.failed else 0


def _side_by_side(first: int, last: int, arm: str, jobs: int) -> Report:
    report = Report()
    with ProcessPoolExecutor(jobs, get_context("spawn")) as processes:
        parts = [processes.submit(search, seeds, arm) for seeds in _parts(first, last)]
        for done in as_completed(parts):
            part = done.result()
            report += part
            for seed, anomaly in part.failed.items():
                print(f"seed {seed}: {anomaly}", flush=True)
            print(report, file=sys.stderr, flush=True)
    return report


def _parts(first: int, last: int) -> Iterator[range]:
    for begin in range(first, last, AT_ONCE):
        yield range(begin, min(begin + AT_ONCE, last))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Runs simulated schedules.")
    parser.add_argument("--schedules", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first schedule")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--arm", choices=sorted(ARMS), default="honest", help="a service that is wrong on purpose")
    parser.add_argument("--until-found", action="store_true", help="stop at the first anomaly; with one job")
    parser.add_argument("--told", type=int, default=1, help="how many failing schedules to shrink and tell in full")
    parser.add_argument("--tell", type=int, metavar="SEED", help="only print the history of this schedule")
    parser.add_argument("--trace", action="store_true", help="list the error branches that no schedule reached; slow")
    return parser.parse_args()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets must not differ between runs of a seed
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | {"PYTHONHASHSEED": "0"})
    sys.exit(main())
