"""`winnow tap`: shows records of the source and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from random import Random

import click

from app.cli.options import DURATION, PERCENT, TextParam, clients, configured, moment, parser_of, reasons_of, topics
from app.cli.tables import as_json, print_json
from app.config import Config
from app.driver.clients import Clients
from app.errors import built
from app.executor.parse import REFUSED, TOO_LARGE, parse
from app.model import Partition
from app.operate.lag import offsets_of
from app.operate.outcomes import pairs
from app.operate.resets import Goal, Target, chosen, resets
from app.times import ago
from parsers.flume import envelope

WORDS = {"earliest": Goal.EARLIEST, "latest": Goal.LATEST, "committed": Goal.CURRENT}


def _start(text: str) -> Target:
    return Target(WORDS[text]) if text in WORDS else Target(Goal.TIME, moment(text))


@click.command(epilog="Example: winnow tap --topic raw-logs:3 --limit 10")
@configured
@topics
@click.option(
    "--since",
    "--from",
    "begin",
    type=TextParam("start", _start),
    help="Start at a time, or at `earliest` or `committed`; by default `latest`.",
)
@click.option("--last", type=DURATION, help="Start 2h ago; the same as --since '2h ago'.")
@click.option("--offset", type=click.IntRange(0), help="Start at this offset of each partition.")
@click.option("--reason", "reasons", multiple=True, help="Only records rejected for this reason; repeatable.")
@click.option("--sample", type=PERCENT, default=100.0, metavar="PERCENT", help="Only a random sample of them.")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many records.")
@as_json
def tap(
    settings: Config,
    *,
    topics: tuple[str, ...],
    begin: Target | None,
    last: float | None,
    offset: int | None,
    reasons: tuple[str, ...],
    sample: float,
    limit: int | None,
    as_json: bool,
) -> int:
    """
    Show source records and their outcomes as they arrive.

    Runs until Ctrl-C. Writes nothing, commits nothing, and needs no running service.
    """
    if of_the_sink := {TOO_LARGE, REFUSED}.intersection(reasons):
        each = min(of_the_sink)
        raise click.UsageError(f"--reason {each}: only the limits of a topic give it; dead letters show it")
    target, wanted = _target(begin, last, offset), reasons_of(settings, reasons)
    from app.start import records

    parser = envelope.wrap(parser_of(settings.parser), settings.source.format)
    if not (starts := _starts(settings, clients(settings), topics, target)):
        return 1
    new = "new " if target.goal is Goal.LATEST else ""
    click.echo(f"showing {new}records of {len(starts)} partitions; press Ctrl-C to stop", err=True)
    dice = Random()  # noqa: S311  # no secret depends on it
    with suppress(KeyboardInterrupt), closing(records(settings.kafka, settings.group_id).batches(starts)) as batches:
        sampled = ([each for each in batch if dice.random() * 100 < sample] for batch in batches)
        shown = (pair for batch in sampled for pair in pairs(batch, partial(parse, parser), wanted))
        for pair in islice(shown, limit):
            if as_json:
                print_json(pair.as_json())
            else:
                click.echo(str(pair))
    return 0


def _target(begin: Target | None, last: float | None, offset: int | None) -> Target:
    if [begin, last, offset].count(None) < 2:
        raise click.UsageError("give only one of --since, --last and --offset")
    if last is not None:
        return Target(Goal.TIME, ago(last))
    if offset is not None:
        return Target(Goal.OFFSET, offset)
    return begin or Target(Goal.LATEST)


def _starts(settings: Config, kafka: Clients, topics: tuple[str, ...], target: Target) -> Mapping[Partition, int]:
    """Return where each partition starts, and say why others cannot."""
    found = offsets_of(settings, kafka)
    planned = resets(built("--topic", lambda: chosen(topics, found)), target, kafka)
    for each in planned:
        if each.offset is None:
            click.echo(f"{each.at.partition}: {each.note}", err=True)
    return {each.at.partition: each.offset for each in planned if each.offset is not None}
