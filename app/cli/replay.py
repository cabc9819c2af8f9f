"""`winnow replay`: cleanses a time range of the source again, into another topic."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import click

from app.cli.layout import View
from app.cli.options import Period, clients, configured, ranged, shown
from app.cli.tables import progress
from app.config import Config
from app.model import Partition, Receipt, TaskConfig
from app.operate.replay import Part, Replay, as_json
from app.times import ago, time_of


@click.command(epilog="Example: winnow replay --from 2026-11-23 --to 2026-11-24 --into trial")
@configured
@ranged
@click.option("--into", metavar="TOPIC", required=True, help="The topic for cleansed lines.")
@click.option("--dead-letters", metavar="TOPIC", help="The topic for rejected records; by default INTO.dlq.")
@click.option("--dry-run", is_flag=True, help="Show what would be read; change nothing.")
@shown
def replay(settings: Config, *, times: Period, into: str, dead_letters: str | None, dry_run: bool) -> View:
    """
    Cleanse a time range of the source into another topic.

    Writes exactly once, and does not touch the service's group. If a replay was stopped or killed, the same command
    resumes it. Exits with 1 if the replay could not finish.
    """
    since, until = _closed(times)
    from app.start import work

    with closing(Replay(settings, clients(settings), (since, until), into, dead_letters)) as chosen:
        receipts: dict[Partition, Receipt] = {}
        if not dry_run:
            with progress("replaying", chosen.length) as advance:
                receipts = chosen.carry_out(work, advance)
    return _view(chosen.tasks, chosen.parts, receipts, done=not dry_run)


def _closed(times: Period) -> tuple[int, int]:
    """Return a range that has both ends, by default until now. It is told: a resumed replay needs the same times."""
    since, until = times
    if since is None:
        raise click.UsageError("give either --since and --until, or --last")
    if until is None:
        until = ago(0)
        if until <= since:
            raise click.UsageError("--since: that is not before now, so there is nothing to replay without --until")
    same = f"--since {time_of(since)} --until {time_of(until)}"
    click.echo(f"to resume this replay if it is stopped, give {same}", err=True)
    return since, until


def _view(tasks: TaskConfig, wanted: Sequence[Part], receipts: dict[Partition, Receipt], *, done: bool) -> View:
    found = [as_json(each, receipts.get(each.left.partition)) for each in wanted]
    problems = any(each["problem"] for each in found)
    counted = ("in", "out", "dead_letters") if done else ()
    shown = ("topic", "partition", "begin", "end", "position", *counted, "problem")
    counts = [each | {"dead_letters": sum(each["dead_letters"].values())} for each in found]
    records, lines = sum(each["in"] for each in found), sum(each["out"] for each in found)
    left = sum(each["end"] - each["position"] for each in found)
    verdict = f"{records} records, {lines} lines" if done else f"{left} offsets would be read"
    if expired := sum(each["expired"] for each in found):
        verdict += f"; retention may have deleted earlier records of the range in {expired} of {len(found)} partitions"
    counts_of = ("#IN", "#OUT", "#DEAD-LETTERS") if done else ()
    topics = {"into": tasks.sink.topic, "dead_letters_into": tasks.dead_letters.topic, "group": tasks.group}
    return View(
        columns=("TOPIC", "#PARTITION", "#BEGIN", "#END", "#POSITION", *counts_of, "?PROBLEM"),
        rows=[[each[key] for key in shown] for each in counts],
        value={"version": 1, "done": done and not left and not problems, **topics, "partitions": found},
        code=1 if done and (left or problems) else 0,
        footer=f"into {tasks.sink.topic}, rejects into {tasks.dead_letters.topic}: {verdict}",
        spare=("BEGIN", "POSITION", "END"),
    )
