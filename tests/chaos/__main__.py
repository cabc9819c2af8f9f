"""The command line of the fault harness: `python -m tests.chaos COMMAND`; `--help` lists the commands."""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tests.chaos.arms import ARMS
from tests.chaos.cluster import SMALL, Size
from tests.chaos.controls import CONTROL_PLANS, TAKEOVER_UNFENCED
from tests.chaos.epochs import EPOCHS
from tests.chaos.epochs import run as run_epochs
from tests.chaos.false_fences import EXPECTED
from tests.chaos.false_fences import run as run_false_fences
from tests.chaos.grouped import History
from tests.chaos.hang import CASES, measure
from tests.chaos.harm.refusals import KINDS, TAKEOVERS
from tests.chaos.history import events
from tests.chaos.nemesis import HARM, KILLS, STORM
from tests.chaos.picture import draw, draw_resources
from tests.chaos.report import report
from tests.chaos.run import BRIEF, RARE, USUAL, Plan, refusals_plans
from tests.chaos.run import run as run_plan
from tests.chaos.work import CONTROLS, HONEST
from tests.chaos.zombies import run as run_zombies

console = Console(width=140)
CHECKOUT: Any = {
    "type": click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    "help": "Test the service of another checkout (its folders `app` and `parsers`).",
}
FORKED: Any = {"is_flag": True, "help": "Run tasks in forked processes rather than on Spark."}


@click.group()
def main() -> None:
    """Inject faults into Winnow and check that delivery is still exactly once."""


@main.command()
@click.option("--seed", type=int, help="Repeat the run that printed this seed.")
@click.option("--minutes", default=12.0, show_default=True, help="How long faults are injected.")
@click.option("--rate", default=1_000, show_default=True, help="Lines written per second.")
@click.option(
    "--arm",
    type=click.Choice(sorted([*CONTROLS, *ARMS])),
    default=HONEST,
    help="The clients to test; every arm but `honest` is broken on purpose.",
)
@click.option(
    "--fault",
    "faults",
    type=click.Choice(list(HARM)),
    multiple=True,
    help="Inject only this fault; repeatable, in the order given.",
)
@click.option("--kills", default=0, help="Inject only kills, of every kind of process, and at least this many.")
@click.option("--storm", default=0, help="Inject only faults that take seconds, and at least this many.")
@click.option("--lines", default=0, help="With --kills or --storm: continue until this many lines are written.")
@click.option("--pause", type=(float, float), help="Seconds between two faults, at least and at most.")
@click.option("--product", **CHECKOUT)
@click.option(
    "--small", is_flag=True, help="Use one broker and local Spark instead of three brokers and a Spark cluster."
)
@click.option("--forked", **FORKED)
@click.option("--kafka", default="", metavar="VERSION", help="Use brokers of another version, such as 3.9.2.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where to write history, picture and logs; by default a new temporary folder.",
)
def run(
    *,
    seed: int | None,
    minutes: float,
    rate: int,
    arm: str,
    faults: tuple[str, ...],
    kills: int,
    storm: int,
    lines: int,
    pause: tuple[float, float] | None,
    product: Path | None,
    small: bool,
    forked: bool,
    kafka: str,
    folder: Path | None,
) -> None:
    """Run the service under faults, check the history and draw it. Exits with 1 if there is an anomaly."""
    seed = random.randrange(1 << 32) if seed is None else seed
    folder = folder or Path(tempfile.mkdtemp(prefix="winnow-chaos-"))
    console.print(f"seed {seed}; history, picture and logs are in {folder}")
    size, pause = SMALL if small else Size(), pause or (BRIEF if kills or storm else USUAL)
    size = replace(size, kafka=kafka, forked=forked, workers=0 if forked else size.workers)
    only, least = KILLS if kills else STORM if storm else (), kills or storm
    plan = Plan(
        seed, minutes * 60, size, faults, only, least, lines, arm, per_second=rate, pause=pause, product=product
    )
    sys.exit(_judge(run_plan(plan, folder)))


@main.command()
@click.option("--hours", default=3.0, show_default=True, help="How long faults are injected.")
@click.option("--seed", default=1, show_default=True, help="Decides the order and the targets of the faults.")
@click.option("--rate", default=500, show_default=True, help="Lines written per second.")
@click.option("--take-over-every", default=15.0, show_default=True, help="Minutes; 0: one driver for the whole run.")
@click.option("--folder", type=click.Path(path_type=Path), help="As for `run`.")
def soak(*, hours: float, seed: int, rate: int, take_over_every: float, folder: Path | None) -> None:
    """Run for hours with a fault every few minutes, and a take-over each quarter of an hour; tell what grows."""
    folder = folder or Path(tempfile.mkdtemp(prefix="winnow-soak-"))
    console.print(f"seed {seed}; history, pictures and logs are in {folder}")
    plan = Plan(seed, hours * 3600, Size(workers=0), per_second=rate, pause=RARE, take_over_every=60 * take_over_every)
    sys.exit(_judge(run_plan(plan, folder)))


@main.command()
@click.argument("history", type=click.Path(path_type=Path, exists=True))
def check(history: Path) -> None:
    """Check and draw a recorded history again. Exits with 1 if there is an anomaly."""
    sys.exit(_judge(history))


@main.command()
@click.option("--seed", default=1, show_default=True, help="Decides the order and the targets of the faults.")
@click.argument("names", nargs=-1, type=click.Choice(list(CONTROL_PLANS)))
def controls(seed: int, names: tuple[str, ...]) -> None:
    """
    Run control arms: services that are broken on purpose. Without NAMES, all of them.

    Exits with 1 if the checker misses the anomaly of one of them.
    """
    found_out = [_is_found_out(name, seed) for name in names or CONTROL_PLANS]
    sys.exit(not all(found_out))


@main.command()
@click.option("--times", default=3, show_default=True, help="How often to do each kind of take-over.")
@click.option("--rate", default=2_000, show_default=True, help="Lines written per second.")
@click.option("--seed", default=1, show_default=True, help="Decides the lines and the pauses.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where to write history and picture.")
@click.argument("names", nargs=-1, type=click.Choice(TAKEOVERS))
def takeover(*, times: int, rate: int, seed: int, folder: Path | None, names: tuple[str, ...]) -> None:
    """
    Let later generations take over: undisturbed, killed in the middle, two at once; then once without the fence.

    Exits with 1 if there is an anomaly, or if the control arm, which has no fence, is not found out.
    """
    folder = folder or Path(tempfile.mkdtemp(prefix="winnow-takeover-"))
    plan = Plan(seed, 3600, SMALL, (names or TAKEOVERS) * times, per_second=rate, pause=BRIEF)
    anomalies = _judge(run_plan(plan, folder))
    found_out = _is_found_out(TAKEOVER_UNFENCED, seed)
    sys.exit(anomalies or not found_out)


@main.command()
@click.option("--times", default=1, show_default=True, help="How often to inject each kind.")
@click.option("--rate", default=200, show_default=True, help="Lines written per second.")
@click.option("--seed", default=1, show_default=True, help="Decides targets and times.")
@click.option("--product", **CHECKOUT)
@click.option("--folder", type=click.Path(path_type=Path), help="Where to write histories and pictures.")
@click.option("--forked", **FORKED)
@click.option("--apart", is_flag=True, help="Give each kind a system of its own: one of them may end the service.")
@click.argument("names", nargs=-1, type=click.Choice(list(KINDS)))
def refusals(
    *,
    times: int,
    rate: int,
    seed: int,
    product: Path | None,
    folder: Path | None,
    forked: bool,
    apart: bool,
    names: tuple[str, ...],
) -> None:
    """
    Inject refusals, half-outages and misconfigurations instead of crashes. Without NAMES, all but take-overs.

    Exits with 1 if there is an anomaly.
    """
    folder = folder or Path(tempfile.mkdtemp(prefix="winnow-refusals-"))
    usual = tuple(name for name in KINDS if name not in TAKEOVERS)
    plans = refusals_plans(names or usual, times, seed, rate=rate, forked=forked, apart=apart, product=product)
    judged = [_judge(run_plan(plan, folder / f"{number}")) for number, plan in enumerate(plans)]
    sys.exit(max(judged))


@main.command()
@click.option("--times", default=50, show_default=True, help="How many workers to stop at each point.")
@click.option("--seed", default=1, show_default=True, help="Decides the order of the points and the pauses.")
@click.option(
    "--arm",
    type=click.Choice(sorted([*CONTROLS, *ARMS])),
    default=HONEST,
    help="The clients to test; every arm but `honest` is broken on purpose.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where to write history and picture; by default a new temporary folder.",
)
def zombies(*, times: int, seed: int, arm: str, folder: Path | None) -> None:
    """
    Stop a worker at each point of the flow, let a successor finish its work, then resume it. Without Spark.

    Exits with 1 if a reader sees a record of the resumed worker after one of its successor, or any other anomaly.
    """
    path = run_zombies(times, seed, arm, folder or Path(tempfile.mkdtemp(prefix="winnow-zombies-")))
    ended = Counter(event["ended"].partition(":")[0] for event in events(path) if event["kind"] == "healed")
    console.print(
        f"{ended.total()} resumed workers: " + ", ".join(f"{count} {how}" for how, count in ended.most_common())
    )
    sys.exit(_judge(path))


@main.command()
@click.option("--tasks", default=10_000, show_default=True, help="How many tasks to run.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where to write history and picture; by default a new temporary folder.",
)
def false_fences(*, tasks: int, folder: Path | None) -> None:
    """
    Run short tasks one after the other, without any fault: none may report that it was fenced. Without Spark.

    Exits with 1 if a task was fenced or failed, or if there is an anomaly.
    """
    path, ended = run_false_fences(tasks, folder or Path(tempfile.mkdtemp(prefix="winnow-false-fences-")))
    anomalies = _judge(path)
    console.print(f"{ended.total():,} tasks: " + ", ".join(f"{count:,} {how}" for how, count in ended.items()))
    sys.exit(anomalies or not ended.keys() <= EXPECTED)


@main.command()
@click.option("--times", default=40_000, show_default=True, help="How many producers to open.")
@click.option("--kafka", default="", metavar="VERSION", help="Use a broker of another version, such as 4.0.0.")
def epochs(*, times: int, kafka: str) -> None:
    """
    Open more producers with one transactional.id than an epoch, of 15 bits, can count. Without Spark.

    Exits with 1 if a committed line is missing or the producer id changes at any other time.
    """
    tally = run_epochs(times, kafka)
    highest = max(each.epoch for each in tally.identities)
    console.print(f"{times:,} openings, {len(tally.written) + tally.left_open:,} of them by librdkafka, of which")
    console.print(f"{tally.left_open} left their transaction open; highest epoch {highest:,}")
    console.print(f"producer ids: {tally.producers}; {len(tally.read):,} lines read")
    sys.exit(tally.written != tally.read or len(tally.producers) != 1 + times // EPOCHS)


@main.command()
def hang() -> None:
    """
    Kill brokers for good before `send_offsets_to_transaction`, and measure how long it blocks. Without Spark.

    Takes several minutes, because most calls block for one.
    """
    table = Table("killed for good", "writers", "send_offsets_to_transaction (5 s) returned after")
    for case in CASES:
        calls = ", ".join(f"{seconds:.1f} s" for seconds in measure(case))
        table.add_row(case.killed, str(case.writers), calls)
    console.print(table)


def _is_found_out(name: str, seed: int) -> bool:
    """Run a control arm; return whether the checker finds its anomaly."""
    path = run_plan(CONTROL_PLANS[name].plan(seed), Path(tempfile.mkdtemp(prefix=f"winnow-chaos-{name}-")))
    found = {finding.name for finding in report(History.of(events(path)), console)}
    expected = CONTROL_PLANS[name].anomaly
    console.print(f"{name}: {'found out' if expected in found else 'NOT FOUND OUT'} ({expected})\n")
    return expected in found


def _judge(path: Path) -> int:
    """Print what a history shows and draw it beside the file; return the exit code."""
    history = History.of(events(path))
    found = report(history, console)
    draw(history, path.with_name("picture.png"))
    draw_resources(history, path.with_name("resources.png"))
    console.print(f"history {path}\npictures {path.with_name('picture.png')} and {path.with_name('resources.png')}")
    return 1 if found else 0


if __name__ == "__main__":
    main()
