"""
Measures how cost grows with the number of source partitions: the same records over 1 to 1,000 partitions.

Usage: python -m tests.bench.scale [--records N] [--partitions N]... [--sink-partitions N] [--cores N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from app.demo.feed import load
from app.demo.lines import Recipe
from app.embedded.broker import Broker
from tests.bench import timed
from tests.bench.job import Job, drop, keep_to, prepared
from tests.bench.measure import InvalidRun, Result, run
from tests.bench.report import markdown, percentile, say
from tests.bench.systems import Contender, service

PARTITIONS = (1, 8, 64, 256, 1000)


def main() -> int:
    """Print a table with one row per number of partitions."""
    options = parse_options()
    keep_to(options.cores)
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="winnow-bench-") as folder:
        rows = []
        for partitions in options.partitions or PARTITIONS:
            recipe, sinks = Recipe(partitions, options.records), min(partitions, options.sink_partitions or partitions)
            rows.append(cells(partitions, sinks, *measure(broker, recipe, sinks, Path(folder))))
            say(", ".join(f"{title}: {cell}" for title, cell in zip(TITLES, rows[-1], strict=True)))
    print(markdown(TITLES, rows))
    return 0


def parse_options() -> argparse.Namespace:
    """Parse the command line."""
    options = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=__doc__.splitlines()[1])
    options.add_argument(
        "--records", type=int, default=4_000_000, help="records over all partitions; default: %(default)s"
    )
    options.add_argument(
        "--partitions",
        type=int,
        action="append",
        metavar="N",
        help=f"source partitions; repeatable; default: {PARTITIONS}",
    )
    options.add_argument(
        "--sink-partitions", type=int, metavar="N", help="at most so many; default: as many as the source"
    )
    options.add_argument("--cores", type=int, default=2, help="cores that broker and job share; default: %(default)s")
    return options.parse_args()


def measure(broker: Broker, recipe: Recipe, sinks: int, folder: Path) -> tuple[Result, timed.Times]:
    """Run Winnow from a new topic into a sink with `sinks` partitions. Return its figures and its workers' times."""
    name = f"scale-{recipe.partitions}"
    source = broker.create_topic(f"{name}.raw", recipe.partitions)
    say(f"loading {recipe.count:,} records into {recipe.partitions} partitions")
    load(broker.bootstrap, source, recipe)
    with prepared(name, broker, source, sinks, folder) as job:
        result = run(Contender("Winnow", "exactly once", winnow), job, broker.pids[0], recipe.count)
        times = timed.read(job.folder)
    drop(broker, [source])
    return result, times


def winnow(job: Job) -> list[str]:
    """Return the command that runs Winnow with workers that record times."""
    return service(job, {}, "--until-end", spark=timed.spark_settings(job.folder))


TITLES = (
    *(
        "source partitions",
        "sink partitions",
        "records/s",
        "CPU-s per million",
        "broker's CPU-s per million",
        "threads of a worker",
    ),
    *("MiB of a worker", "start of a round", "commit p50", "commit p99"),
)


def cells(partitions: int, sinks: int, result: Result, times: timed.Times) -> list[str]:
    """Return the cells of a row."""
    return [
        f"{partitions:,}",
        f"{sinks:,}",
        f"{result.records_per_second:,.0f}",
        f"{result.cpu_per_million:.2f}",
        f"{result.broker_cpu_per_million:.2f}",
        f"{result.worker_threads:,.0f}",
        f"{result.worker_mib:,.0f}",
        f"{max(times.opened):.2f} s",
        f"{1000 * percentile(times.commits, 50):,.0f} ms",
        f"{1000 * percentile(times.commits, 99):,.0f} ms",
    ]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InvalidRun as error:
        sys.exit(f"invalid run: {error}")
