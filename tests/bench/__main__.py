"""
Measures Winnow and its alternatives in turn, on one embedded broker and two cores.

Usage: python -m tests.bench [--records N] [--partitions N] [--runs N] [--cores N] [--only WORD]... [--against FOLDER] [--verify] [--picture FILE]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from app.demo.feed import load
from app.demo.lines import Recipe
from app.demo.verify import Verification
from app.embedded.broker import Broker
from app.errors import NotUsable
from tests.bench.job import Job, keep_to, prepared
from tests.bench.measure import InvalidRun, Result, medians, run
from tests.bench.picture import Bar, draw
from tests.bench.report import markdown, say, spread
from tests.bench.systems import SYSTEMS, Contender, earlier

PICTURE = Path(__file__).with_name("speed.svg")


def main() -> int:
    """Run every system several times, interleaved. Print a table for RESULTS.md and draw its chart."""
    options = parse_options()
    keep_to(options.cores)
    recipe = Recipe(options.partitions, options.records)
    results: dict[Contender, list[Result]] = defaultdict(list)
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="winnow-bench-") as folder:
        candidates = [*chosen(options.only), *(earlier(options.against) if options.against else ())]
        systems = [system for system in candidates if usable(system, Path(folder))]
        source = broker.create_topic("raw", recipe.partitions)
        say(f"loading {recipe.count:,} records")
        load(broker.bootstrap, source, recipe)
        warm_up(systems[0], broker, source, recipe, Path(folder))
        for number in range(1, options.runs + 1):
            # Reverse every other round, so that no system always runs after the same one.
            for system in systems if number % 2 else systems[::-1]:
                with prepared(f"{system.slug}-{number}", broker, source, recipe.partitions, Path(folder)) as job:
                    results[system].append(measure(system, job, broker, recipe))
                    if options.verify and number == 1:
                        verify(system, job, recipe)
    print(table(results))
    title = f"{recipe.count:,} records, {recipe.partitions} partitions, {options.cores} cores for job and broker"
    draw([bar(system, medians(found)) for system, found in results.items()], title, options.picture)
    return 0


def parse_options() -> argparse.Namespace:
    """Parse the command line."""
    options = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[1])
    options.add_argument("--records", type=int, default=12_000_000, help="default: %(default)s")
    options.add_argument("--partitions", type=int, default=8, help="default: %(default)s")
    options.add_argument("--runs", type=int, default=3, help="measured runs of each system; default: %(default)s")
    options.add_argument("--cores", type=int, default=2, help="cores that broker and job share; default: %(default)s")
    options.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD",
        help="only systems whose name contains this word; repeatable",
    )
    options.add_argument(
        "--against",
        type=Path,
        metavar="FOLDER",
        help="also run Winnow from another checkout, such as an earlier version",
    )
    options.add_argument(
        "--verify", action="store_true", help="compare every record of each system's first run with the generated lines"
    )
    options.add_argument(
        "--picture", type=Path, default=PICTURE, metavar="FILE", help="the picture to write; default: %(default)s"
    )
    return options.parse_args()


def chosen(words: Sequence[str]) -> list[Contender]:
    """Return the systems whose name contains one of the words, or all systems if there are none."""
    return [each for each in SYSTEMS if not words or any(word.lower() in each.name.lower() for word in words)]


def usable(system: Contender, folder: Path) -> bool:
    """Fetch what a system needs and return whether it can run. Print the reason if it cannot."""
    try:
        system.command(Job("", "", "", "", 1, system.slug, folder))
    except (NotUsable, subprocess.CalledProcessError) as error:
        say(f"skipped: {system.name}: {error}")
        return False
    return True


def warm_up(system: Contender, broker: Broker, source: str, recipe: Recipe, folder: Path) -> None:
    """Run one system without measuring it: the broker's JVM is slow until its hot code is compiled."""
    say("warming up the broker")
    with prepared("warm-up", broker, source, recipe.partitions, folder) as job:
        run(system, job, broker.pids[0], recipe.count)


def measure(system: Contender, job: Job, broker: Broker, recipe: Recipe) -> Result:
    """Run one system once, print its result and return it."""
    result = run(system, job, broker.pids[0], recipe.count)
    say(f"{job.group}: {result.records_per_second:,.0f} records/s, {result.cpu_per_million:.2f} CPU-s per million")
    return result


def verify(system: Contender, job: Job, recipe: Recipe) -> None:
    """Compare every record of a run with the recipe. Raise InvalidRun for an unexpected fault."""
    with Verification(
        job.bootstrap, recipe, source=job.source, sink=job.sink, dead_letters=job.dead_letters
    ) as verification:
        faults = verification.finish(timeout=900).faults
    if faults.keys() - system.tolerated:
        message = f"{system.name} has faults in its output: {faults}"
        raise InvalidRun(message)
    say(f"{job.group}: verified; expected faults: {faults or 'none'}")


def table(results: Mapping[Contender, Sequence[Result]]) -> str:
    """Return the medians as a Markdown table, with the lowest and highest values in brackets."""
    columns: list[tuple[str, Callable[[Result], float], str]] = [
        ("records/s", lambda result: result.records_per_second, ",.0f"),
        ("CPU-s per million", lambda result: result.cpu_per_million, ".2f"),
        ("broker's CPU-s per million", lambda result: result.broker_cpu_per_million, ".2f"),
        ("MiB of a Python worker", lambda result: result.worker_mib, ".0f"),
    ]
    rows = [
        [system.name, system.guarantee, *(spread([pick(each) for each in found], form) for _, pick, form in columns)]
        for system, found in results.items()
    ]
    return markdown(["system", "guarantee", *(title for title, _, _ in columns)], rows)


def bar(system: Contender, result: Result) -> Bar:
    """Return a system's bar in the chart."""
    title = f"{system.name}\n{system.guarantee}"
    return Bar(title, result.records_per_second, result.cpu_per_million, system.name.startswith("Winnow"))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InvalidRun as error:
        sys.exit(f"invalid run: {error}")
