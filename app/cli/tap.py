"""`winnow tap`: shows live records of the source and their outcomes."""

from __future__ import annotations

import json
from functools import partial
from itertools import islice
from pathlib import Path

import click

from app.cli.options import configuration, overrides, parser_of, read, reports_errors
from app.cli.tables import as_json
from app.executor.parse import parse
from app.operate.lag import offsets_of
from app.operate.pairs import pairs
from parsers.flume import envelope


@click.command()
@configuration
@overrides
@click.option("--reason", "reasons", multiple=True, help="Only records rejected for this reason; repeatable.")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many records.")
@as_json
@reports_errors
def tap(
    file: Path | None,
    assignments: tuple[str, ...],
    reasons: tuple[str, ...],
    limit: int | None,
    as_json: bool,  # noqa: FBT001  # click's flag
) -> int:
    """
    Show source records and their outcomes as they arrive.

    Runs until Ctrl-C. Writes nothing, commits nothing, and needs no running service.
    """
    settings = read(file, assignments).config
    parser = envelope.wrap(parser_of(settings.parser), settings.source.format)
    from app.kafka.records import KafkaRecords
    from app.start import clients

    found = offsets_of(settings, clients(settings))
    starts = {each.partition: each.watermarks.last_stable for each in found if each.watermarks is not None}
    click.echo(f"showing new records of {len(starts)} partitions; press Ctrl-C to stop", err=True)
    batches = KafkaRecords(settings.kafka, settings.group_id).batches(starts)
    shown = (pair for records in batches for pair in pairs(records, partial(parse, parser), reasons))
    try:
        for pair in islice(shown, limit):
            click.echo(json.dumps(pair.as_json(), ensure_ascii=False) if as_json else str(pair))
    except KeyboardInterrupt:
        return 0
    finally:
        batches.close()
    return 0
