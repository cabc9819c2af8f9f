"""
Measures Winnow and Spark's own Kafka connector side by side, on one embedded broker and two cores.

Usage: python -m tests.bench [--records N] [--partitions N] [--runs N] [--only WORD] [--cores N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from app.demo.broker import Broker
from app.demo.lines import Recipe, load
from tests.bench.measure import Result, RunVoid, run
from tests.bench.systems import SYSTEMS, Job, System


def main() -> int:
    """Run every system several times, interleaved, and print a table for the README."""
    options = parse_options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])  # inherited by the broker and the jobs
    systems = [system for system in SYSTEMS if options.only.lower() in system.name.lower()]
    recipe = Recipe(options.partitions, options.records)
    results: dict[str, list[Result]] = defaultdict(list)
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="winnow-bench-") as folder:
        source = broker.create_topic("raw", recipe.partitions)
        say(f"loading {recipe.count:,} records")
        load(broker.bootstrap, source, recipe)
        for number in range(1, options.runs + 1):
            for system in systems:
                name = f"{system.name} {number}".lower().translate(str.maketrans(" ,'", "---"))
                job = prepare(name, broker, source, recipe, Path(folder))
                results[system.name].append(measure(system, job, broker, recipe))
    print(table(systems, results))
    return 0


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    options = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[1])
    options.add_argument("--records", type=int, default=4_000_000)
    options.add_argument("--partitions", type=int, default=8)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--cores", type=int, default=2, help="cores for the broker and the job together")
    options.add_argument("--only", default="", metavar="WORD", help="only systems whose name holds this word")
    return options.parse_args()


def prepare(name: str, broker: Broker, source: str, recipe: Recipe, folder: Path) -> Job:
    """Create fresh output topics and a folder for one run."""
    sink = broker.create_topic(f"{name}.clean", recipe.partitions)
    dead_letters = broker.create_topic(f"{name}.dlq")
    (folder / name).mkdir()
    return Job(broker.bootstrap, source, sink, dead_letters, recipe.partitions, name, folder / name)


def measure(system: System, job: Job, broker: Broker, recipe: Recipe) -> Result:
    """Run one system once, and drop its output."""
    try:
        result = run(system, job, broker.pids[0], recipe.count)
    finally:
        admin = broker.admin()
        for deleted in admin.delete_topics([job.sink, job.dead_letters]).values():
            deleted.result(30)
    say(f"{job.group}: {result.records_per_second:,.0f} records/s, {result.cpu_per_million:.2f} CPU-s per million")
    return result


def table(systems: list[System], results: dict[str, list[Result]]) -> str:
    """Return the medians, and the spread in brackets, as a Markdown table."""
    columns: list[tuple[str, Callable[[Result], float], str]] = [
        ("records/s", lambda result: result.records_per_second, ",.0f"),
        ("CPU-s per million", lambda result: result.cpu_per_million, ".2f"),
        ("broker's CPU-s per million", lambda result: result.broker_cpu_per_million, ".2f"),
        ("MiB of a Python worker", lambda result: result.worker_mib, ".0f"),
    ]
    rows = [["system", "guarantee", *(title for title, _, _ in columns)], ["---"] * (len(columns) + 2)]
    for system in systems:
        numbers = [spread([pick(each) for each in results[system.name]], form) for _, pick, form in columns]
        rows.append([system.name, system.guarantee, *numbers])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def spread(numbers: list[float], form: str) -> str:
    """Return the median and, where there are several numbers, the lowest and the highest."""
    if not any(numbers):
        return "-"
    middle = format(statistics.median(numbers), form)
    return middle if len(numbers) == 1 else f"{middle} ({min(numbers):{form}} to {max(numbers):{form}})"


def say(message: str) -> None:
    """Tell the person who waits."""
    sys.stderr.write(f"{message}\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunVoid as void:
        sys.exit(f"void: {void}")
