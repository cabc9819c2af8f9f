"""`winnow offsets show` and `winnow offsets reset`: shows and sets the offsets in the store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from app import config
from app.cli.options import built, configuration, overrides, read, reports_errors
from app.cli.tables import View, as_json, progress, show
from app.cures import RESTART
from app.driver.clients import Clients
from app.errors import ConfigError
from app.model import NOBODY
from app.offsets.contract import is_local
from app.offsets.history import milliseconds_of
from app.operate.commits import as_json as json_of_commit
from app.operate.commits import metadata_of
from app.operate.lag import PartitionLag, offsets_of
from app.operate.resets import Goal, Reset, Target, chosen, resets, seconds_of
from app.operate.running import StoppedService

BY_DURATION = "by-duration"
topics = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITIONS]",
    help="Only these, such as raw-logs or raw-logs:0,3-5; repeatable. By default all source topics.",
)


@click.command("show")
@configuration
@overrides
@topics
@as_json
@reports_errors
def show_offsets(file: Path | None, assignments: tuple[str, ...], topics: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001  # click's flag
    """
    Show the group's offsets with their metadata.

    That is the counts of the records before them, and who committed them. Exits with 1 if a partition or its offset has
    a problem.
    """
    settings = read(file, assignments).config
    _, found = _found(settings, topics)
    problems = any(each.problem for each in found)
    view = View(
        columns=(
            *("TOPIC", "#PARTITION", "#CURRENT-OFFSET", "#SINCE", "#IN", "#OUT", "#DEAD-LETTERS", "COMMITTED-BY"),
            *(["PROBLEM"] if problems else []),
        ),
        rows=[[*_row_of_commit(each), *([each.problem] if problems else [])] for each in found],
        value={"version": 1, "group": settings.group_id, "partitions": [json_of_commit(each) for each in found]},
        code=1 if problems else 0,
    )
    return show(view, as_json=as_json)


def _row_of_commit(at: PartitionLag) -> list[object]:
    metadata = metadata_of(at)
    if not metadata.is_ours:
        return [*at.partition, at.offset, *[None] * 5]
    counts, owner = metadata.counts, metadata.owner
    by = None if owner == NOBODY else f"{owner.host}, started {owner.started_at}, generation {owner.generation}"
    return [*at.partition, at.offset, metadata.since, counts.records, counts.out, counts.dead_total, by]


@click.command()
@configuration
@overrides
@click.option("--to-earliest", is_flag=True, help="To the beginning of each partition.")
@click.option("--to-latest", is_flag=True, help="To the end of the committed records.")
@click.option("--to-current", is_flag=True, help="To where they are; forgets which run committed them.")
@click.option(
    "--to-datetime", metavar="TIME", help="To the first record at or after this time; UTC unless it has a zone."
)
@click.option("--to-offset", type=click.IntRange(0), help="To this offset.")
@click.option("--shift-by", type=int, help="By this many offsets; back if negative.")
@click.option("--by-duration", metavar="DURATION", help="To the first record no older than 2h (or PT2H).")
@topics
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@as_json
@reports_errors
def reset(  # click's options
    *,
    file: Path | None,
    assignments: tuple[str, ...],
    topics: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **goals: Any,  # noqa: ANN401  # each option has its own type
) -> int:
    """
    Set the group's offsets while the service is stopped.

    Writes to the configured store. Changes nothing if the service is running (exit code 3) or if a partition cannot be
    set (exit code 1).
    """
    target = _target(goals)
    settings = read(file, assignments).config
    clients, found = _found(settings, topics)
    planned = resets(found, target, clients)
    feasible = all(each.offset is not None for each in planned)
    if feasible and not dry_run:
        _carry_out(planned, clients, settings)
    return show(_view(settings.group_id, planned, done=feasible and not dry_run), as_json=as_json)


def _target(goals: dict[str, Any]) -> Target:
    given = {name.replace("_", "-"): value for name, value in goals.items() if value is not None and value is not False}
    if len(given) != 1:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in goals)
        raise click.UsageError(f"give exactly one of {options}")
    ((name, value),) = given.items()
    if name == BY_DURATION:
        seconds = built(f"--{name}", lambda: seconds_of(value))
        return Target(Goal.TIME, max(0, round((time.time() - seconds) * 1000)))
    if name == Goal.TIME:
        return Target(Goal.TIME, built(f"--{name}", lambda: milliseconds_of(value)))
    return Target(Goal(name), 0 if value is True else value)


def _found(settings: config.Config, topics: tuple[str, ...]) -> tuple[Clients, list[PartitionLag]]:
    """Return the driver's clients and the offsets of the chosen partitions."""
    from app.start import clients

    kafka = clients(settings)
    if is_local(kafka.offsets):
        raise ConfigError((f"offsets.store: {settings.offsets.store.name} has no offset to set: {RESTART}",))
    found = {each.partition: each for each in offsets_of(settings, kafka)}
    partitions = built("--topic", lambda: chosen(topics, found))
    return kafka, [found[each] for each in partitions]


def _carry_out(planned: list[Reset], clients: Clients, settings: config.Config) -> None:
    service, partitions = StoppedService(settings, clients), [each.at.partition for each in planned]
    with service.changing(clients.offsets, partitions) as written, progress("setting offsets", len(planned)) as done:
        for each in planned:
            partition, committed = each.at.partition, each.committed
            clients.offsets.reset(partition, committed.offset, committed.metadata)
            written[partition] = committed
            done()


def _view(group: str, planned: list[Reset], *, done: bool) -> View:
    blocked = [each for each in planned if each.offset is None]
    notes = any(each.note for each in planned)
    verdict = (
        "set" if done else f"nothing was changed: {len(blocked)} cannot be set" if blocked else "nothing was changed"
    )
    return View(
        columns=("TOPIC", "#PARTITION", "#CURRENT-OFFSET", "#NEW-OFFSET", "#CHANGE", *(["NOTE"] if notes else [])),
        rows=[
            [*each.at.partition, each.at.offset, each.offset, each.change, *([each.note] if notes else [])]
            for each in planned
        ],
        value={"version": 1, "group": group, "done": done, "partitions": [each.as_json() for each in planned]},
        code=1 if blocked else 0,
        footer=f"group {group}: {verdict}",
    )
