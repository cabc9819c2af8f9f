"""`winnow tap`: shows live records of the source and their outcomes."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice

import click

from app.cli.options import clients, configured, parser_of
from app.cli.tables import as_json
from app.config import Config
from app.executor.parse import parse
from app.operate.lag import offsets_of
from app.operate.tap import pairs
from parsers.flume import envelope


@click.command()
@configured
@click.option("--reason", "reasons", multiple=True, help="Only records rejected for this reason; repeatable.")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many records.")
@as_json
def tap(settings: Config, *, reasons: tuple[str, ...], limit: int | None, as_json: bool) -> int:
    """
    Show source records and their outcomes as they arrive.

    Runs until Ctrl-C. Writes nothing, commits nothing, and needs no running service.
    """
    from app.start import records

    parser = envelope.wrap(parser_of(settings.parser), settings.source.format)
    found = offsets_of(settings, clients(settings))
    starts = {each.partition: each.watermarks.last_stable for each in found if each.watermarks is not None}
    click.echo(f"showing new records of {len(starts)} partitions; press Ctrl-C to stop", err=True)
    batches = records(settings.kafka, settings.group_id).batches(starts)
    shown = (pair for batch in batches for pair in pairs(batch, partial(parse, parser), reasons))
    try:
        for pair in islice(shown, limit):
            click.echo(json.dumps(pair.as_json(), ensure_ascii=False) if as_json else str(pair))
    except KeyboardInterrupt:
        return 0
    finally:
        batches.close()
    return 0
