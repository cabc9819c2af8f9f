"""The command line of the harness: `python -m tests.chaos run | check | controls | zombies | peace | epochs`."""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from app.model import Outcome
from tests.chaos.checker import History
from tests.chaos.cluster import SMALL, Size
from tests.chaos.controls import CONTROL_PLANS
from tests.chaos.epochs import EPOCHS
from tests.chaos.epochs import run as run_epochs
from tests.chaos.false_fences import run as run_false_fences
from tests.chaos.hang import rows as hanging_rows
from tests.chaos.history import events
from tests.chaos.nemesis import HARM
from tests.chaos.picture import draw
from tests.chaos.report import report
from tests.chaos.run import BRIEF, USUAL, Plan
from tests.chaos.run import run as run_plan
from tests.chaos.work import CONTROLS, HONEST
from tests.chaos.zombies import run as run_zombies

console = Console(width=140)


@click.group()
def main() -> None:
    """Do harm to Winnow, and look whether it is still exactly once."""


@main.command()
@click.option("--seed", type=int, help="Do the same harm in the same order again.")
@click.option("--minutes", default=12.0, show_default=True, help="How long harm is done.")
@click.option("--rate", default=1_000, show_default=True, help="Lines a second.")
@click.option("--arm", type=click.Choice(sorted(CONTROLS)), default=HONEST, help="Another arm must fail.")
@click.option(
    "--fault", "faults", type=click.Choice(list(HARM)), multiple=True, help="Only this, in this order; repeatable."
)
@click.option("--kills", default=0, help="Only kill processes, of every kind, and that so often at least.")
@click.option("--lines", default=0, help="With --kills: go on until so many are written.")
@click.option("--small", is_flag=True, help="One broker, no Spark cluster.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where history, picture and logs go.")
def run(
    *,
    seed: int | None,
    minutes: float,
    rate: int,
    arm: str,
    faults: tuple[str, ...],
    kills: int,
    lines: int,
    small: bool,
    folder: Path | None,
) -> None:
    """Run, judge and draw. Ends with 1 if an anomaly was found."""
    seed = random.randrange(1 << 32) if seed is None else seed
    folder = folder or Path(tempfile.mkdtemp(prefix="winnow-chaos-"))
    console.print(f"seed {seed}; history, picture and logs go to {folder}")
    size = SMALL if small else Size()
    plan = Plan(seed, minutes * 60, size, faults, kills, lines, arm, rate, BRIEF if kills else USUAL)
    sys.exit(_judge(run_plan(plan, folder)))


@main.command()
@click.argument("history", type=click.Path(path_type=Path, exists=True))
def check(history: Path) -> None:
    """Judge a history again, and draw it again."""
    sys.exit(_judge(history))


@main.command()
@click.option("--seed", default=1, show_default=True)
@click.argument("names", nargs=-1, type=click.Choice(list(CONTROL_PLANS)))
def controls(seed: int, names: tuple[str, ...]) -> None:
    """Run the control arms: services that are wrong on purpose. Ends with 1 if one is not found out."""
    missed = []
    for name in names or CONTROL_PLANS:
        path = run_plan(CONTROL_PLANS[name].plan(seed), Path(tempfile.mkdtemp(prefix=f"winnow-chaos-{name}-")))
        found = {finding.name for finding in report(History.of(events(path)), console)}
        expected = CONTROL_PLANS[name].anomaly
        console.print(f"{name}: {'found out' if expected in found else 'NOT FOUND OUT'} ({expected})\n")
        missed += [name] if expected not in found else []
    sys.exit(1 if missed else 0)


@main.command()
@click.option("--times", default=50, show_default=True, help="How often a worker is stopped at each point.")
@click.option("--seed", default=1, show_default=True)
@click.option("--arm", type=click.Choice(sorted(CONTROLS)), default=HONEST, help="Another arm must fail.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where history and picture go.")
def zombies(*, times: int, seed: int, arm: str, folder: Path | None) -> None:
    """Stop workers at each point of the flow, let others take over, and let the first go on. Without Spark."""
    path = run_zombies(times, seed, arm, folder or Path(tempfile.mkdtemp(prefix="winnow-zombies-")))
    ended = Counter(event["ended"].partition(":")[0] for event in events(path) if event["kind"] == "healed")
    console.print(f"{ended.total()} zombies: " + ", ".join(f"{count} {how}" for how, count in ended.most_common()))
    sys.exit(_judge(path))


@main.command()
@click.option("--tasks", default=10_000, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where history and picture go.")
def false_fences(*, tasks: int, folder: Path | None) -> None:
    """Run short tasks to which nothing happens: none may be fenced. Without Spark."""
    path, ended = run_false_fences(tasks, folder or Path(tempfile.mkdtemp(prefix="winnow-peace-")))
    anomalies = _judge(path)
    console.print(f"{ended.total():,} tasks: " + ", ".join(f"{count:,} {how}" for how, count in ended.items()))
    sys.exit(anomalies or set(ended) != {Outcome.DONE.value})


@main.command()
@click.option("--times", default=40_000, show_default=True)
def epochs(*, times: int) -> None:
    """Open more producers with one transactional.id than an epoch can count. Without Spark."""
    tally = run_epochs(times)
    opened, highest = len(tally.identities) + len(tally.written), max(each.epoch for each in tally.identities)
    console.print(f"{opened:,} times opened, {len(tally.written):,} of it by clients; highest epoch seen {highest:,}")
    console.print(f"producer ids: {tally.producers}; {len(tally.read):,} lines read")
    sys.exit(tally.written != tally.read or len(tally.producers) != 1 + opened // EPOCHS)


@main.command()
def hang() -> None:
    """Take brokers away while transactions are about to take an offset. Without Spark; some minutes of waiting."""
    table = Table(
        "gone for good", "writers", "send_offsets_to_transaction (5 s) returned after", "the worker, looked after"
    )
    for case, alone, watched in hanging_rows():
        calls = ", ".join(f"{seconds:.1f} s" for seconds in sorted(alone.calls or ()))
        end = "ended by its watchdog" if watched.calls is None else "came back"
        table.add_row(case.gone, str(case.writers), calls, f"{end} after {watched.seconds:.1f} s")
    console.print(table)


def _judge(path: Path) -> int:
    history = History.of(events(path))
    found = report(history, console)
    draw(history, path.with_name("picture.png"))
    console.print(f"history {path}\npicture {path.with_name('picture.png')}")
    return 1 if found else 0


if __name__ == "__main__":
    main()
