"""`winnow offsets`: shows, sets, moves and restores the group's offsets."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import click

from app.cli.groups import CommandGroup
from app.cli.layout import View
from app.cli.options import DURATION, MOMENT, clients, configured, shown, topics
from app.cli.tables import progress
from app.cli.tables import show as show_view
from app.config import Config
from app.driver.clients import Clients
from app.errors import built
from app.model import NOBODY
from app.operate.lag import PartitionLag, offsets_of
from app.operate.resets import Goal, Reset, Target, carry_out, chosen, refuse_local, resets
from app.operate.stores import Stores
from app.times import ago

NUMBERS = ("#CURRENT-OFFSET", "#SINCE", "#IN", "#OUT", "#DEAD-LETTERS")
"""The columns of the numbers in a commit."""


@click.group(cls=CommandGroup)
def offsets() -> None:
    """Show or change the group's offsets. Stop the service before you change them."""


@offsets.command(epilog="Example: winnow offsets show --topic raw-logs:0-3")
@configured
@topics
@shown
def show(settings: Config, *, topics: tuple[str, ...]) -> View:
    """
    Show the group's offsets with their metadata.

    That is the counts of the records before them, and who committed them. Exits with 1 if a partition or its offset has
    a problem.
    """
    return _stored(settings.group_id, _found(settings, topics)[1])


def _stored(group: str, found: list[PartitionLag]) -> View:
    by = [_committed_by(each) for each in found]
    one = by[0] if len(set(by)) == 1 else None
    return View(
        columns=("TOPIC", "#PARTITION", *NUMBERS, "?COMMITTED-BY", "?PROBLEM"),
        rows=[[*_row_of_commit(each), None if one else who, each.problem] for each, who in zip(found, by, strict=True)],
        value={"version": 1, "group": group, "partitions": [each.stored_as_json() for each in found]},
        code=1 if any(each.problem for each in found) else 0,
        footer=f"group {group}: committed by {one}" if one else "",
        spare=("SINCE", "OUT", "IN"),
    )


def _row_of_commit(at: PartitionLag) -> list[object]:
    metadata = at.metadata
    if not metadata.is_ours:
        return [*at.partition, at.offset, *[None] * 4]
    counts = metadata.counts
    return [*at.partition, at.offset, metadata.since, counts.records, counts.out, counts.dead_total]


def _committed_by(at: PartitionLag) -> str | None:
    owner = at.metadata.owner
    return None if owner == NOBODY else f"{owner.host}, started {owner.started_at}, generation {owner.generation}"


@offsets.command(epilog="Example: winnow offsets reset --by-duration 2h --dry-run")
@configured
@click.option("--to-earliest", is_flag=True, help="To the beginning of each partition.")
@click.option("--to-latest", is_flag=True, help="To the end of the committed records.")
@click.option("--to-current", is_flag=True, help="To where they are; forgets which run committed them.")
@click.option(
    "--to-time", "--to-datetime", "to_datetime", type=MOMENT, help="To the first record at or after this time."
)
@click.option("--to-offset", type=click.IntRange(0), help="To this offset.")
@click.option("--shift-by", type=int, help="By this many offsets; back if negative.")
@click.option("--by-duration", type=DURATION, help="To the first record no older than 2h.")
@topics
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask on a terminal; elsewhere nothing is asked.")
@shown
def reset(
    settings: Config,
    *,
    topics: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    **goals: Any,  # noqa: ANN401  # each option has its own type
) -> View:
    """
    Set the group's offsets while the service is stopped.

    Writes to the configured store. On a terminal it shows what it would do, and asks. Changes nothing if the service
    is running (exit code 3) or if a partition cannot be set (exit code 1). If it fails midway, it says what is left
    (exit code 3).
    """
    target = _target(goals)
    clients, found = _found(settings, topics)
    planned = resets(found, target, clients)
    settable = [each for each in planned if each.offset is not None]
    feasible = bool(settable) and not any(each.is_refused for each in planned)
    if feasible and not dry_run:
        if not yes and _is_terminal():
            _ask(_view(settings.group_id, settable, done=False))
        with progress("setting offsets", len(settable), "partitions") as done:
            carry_out(settable, clients, settings, partial(done, 1))
    return _view(settings.group_id, planned, done=feasible and not dry_run)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _ask(plan: View) -> None:
    """Show the plan and ask whether to go on, beside what the command prints. Raises click.Abort if not."""
    with redirect_stdout(sys.stderr):
        show_view(plan._replace(footer=""), as_json=False)
    click.confirm(f"set {len(plan.rows)} offsets?", abort=True, err=True)


def _target(goals: dict[str, Any]) -> Target:
    given = {name.replace("_", "-"): value for name, value in goals.items() if value is not None and value is not False}
    if len(given) != 1:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in goals)
        raise click.UsageError(f"give exactly one of {options}")
    ((name, value),) = given.items()
    if name == "by-duration":
        return Target(Goal.TIME, ago(value))
    return Target(Goal(name), 0 if value is True else value)


def _found(settings: Config, topics: tuple[str, ...]) -> tuple[Clients, list[PartitionLag]]:
    kafka = clients(settings)
    refuse_local(settings, kafka)
    found = offsets_of(settings, kafka)
    return kafka, built("--topic", lambda: chosen(topics, found))


def _view(group: str, planned: list[Reset], *, done: bool) -> View:
    blocked = [each for each in planned if each.is_refused]
    verdict = "set" if done else "nothing was changed"
    verdict += f": {len(blocked)} cannot be set" if blocked else ""
    return View(
        columns=("TOPIC", "#PARTITION", "#CURRENT-OFFSET", "#NEW-OFFSET", "#CHANGE", "?NOTE"),
        rows=[[*each.at.partition, each.at.offset, each.offset, each.change, each.note] for each in planned],
        value={"version": 1, "group": group, "done": done, "partitions": [each.as_json() for each in planned]},
        code=1 if blocked else 0,
        footer=f"group {group}: {verdict}",
    )


@offsets.command(epilog="Example: winnow offsets migrate --from kafka --to redis --dry-run")
@configured
@click.option("--from", "source", required=True, metavar="STORE", help="The store to move from; see --to.")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="STORE",
    help="The store to move to: the name of a configured one (`offsets.store`, `offsets.mirrors`), `kafka`, or a store "
    "in the configuration's form, such as '{name: redis, url: …}'. With sink.kafka, `kafka` is the group on the sink's "
    "cluster and `source` the one on the source's.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be moved; change nothing.")
@click.option("--force", is_flag=True, help="Move an offset even if the target holds a larger one, or something else.")
def migrate(settings: Config, *, source: str, target: str, dry_run: bool, force: bool) -> int:
    """
    Move the group's offsets from one store to another.

    Reports each partition. Exits with 1 if there is nothing to move, or if an offset would go back or replace something
    else (unless --force).
    """
    with Stores(settings, partial(clients, settings), click.echo) as stores:
        return 0 if stores.migrate(source, target, dry_run=dry_run, force=force) else 1


@offsets.command(epilog="Example: winnow offsets history --most 5")
@configured
@click.option(
    "--store", metavar="STORE", help="The store to read; by default the first configured one that keeps a history."
)
@click.option(
    "--most", type=click.IntRange(1), default=20, show_default=True, help="How many entries to list per topic."
)
@click.option("--restore", type=MOMENT, help="Set the group's offsets back to this time, such as a listed one.")
@click.option("--dry-run", is_flag=True, help="Show what --restore would do; change nothing.")
def history(settings: Config, *, store: str | None, most: int, restore: int | None, dry_run: bool) -> int:
    """List the group's earlier offsets, or restore them. Only some stores, such as hbase, keep a history."""
    with Stores(settings, partial(clients, settings), click.echo) as stores:
        if restore is None:
            stores.list_history(store, most)
            return 0
        return 0 if stores.restore(store, restore, dry_run=dry_run) else 1
