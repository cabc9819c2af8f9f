"""`winnow top`: shows the lag and rates of the partitions, live."""

from __future__ import annotations

import shutil
import time

import click

from app.cli.layout import View
from app.cli.options import clients, configured
from app.cli.tables import as_json, watch
from app.config import Config
from app.model import Pause
from app.operate.lag import measure, unknown
from app.operate.top import LagSample, Row, rows, summed

RATES = ("#RECORDS/S", "#DEAD/S", "#DEAD-%")
COLUMNS = ("TOPIC", "#PARTITION", "#LAG", "#LAG-SECONDS", *RATES, "#CLOSES-IN-S", "?PROBLEM")
SPARE = ("DEAD-%", "CLOSES-IN-S", "DEAD/S")
# The headings, the footer, and a line for a long problem.
OTHER_LINES = 4


@click.command()
@configured
@as_json
def top(settings: Config, *, as_json: bool) -> int:
    """
    Show the lag and rates of the partitions, live.

    Lists the worst first, and refreshes every two seconds until Ctrl-C. Changes nothing, and does not need the
    service's HTTP port.
    """
    from app.start import first_records

    kafka, records = clients(settings), first_records(settings)
    before: LagSample | None = None

    def look() -> View:
        nonlocal before
        now = LagSample.of(time.monotonic(), measure(settings, kafka, records, time.time()))
        found, before = rows(before, now), now
        return _view(settings.group_id, found, kafka.pauses.read())

    return watch(look, as_json=as_json)


def _view(group: str, found: list[Row], pause: Pause | None) -> View:
    total = summed(found)
    fit = max(1, shutil.get_terminal_size().lines - OTHER_LINES)
    footer = f"group {group}: lag {total['lag']}, {total['records_per_second']} records/s"
    footer += f", {total['dead_letters_per_second']} dead letters/s; {len(found)} partitions"
    footer += f", showing the first {fit}" if len(found) > fit else ""
    footer += unknown([each.at for each in found])
    paused, partitions = pause._asdict() if pause else None, [each.as_json() for each in found]
    return View(
        columns=COLUMNS,
        rows=[_row(each) for each in found[:fit]],
        value={"version": 1, "group": group, **total, "paused": paused, "partitions": partitions},
        footer=footer + (f"; {pause}" if pause else ""),
        spare=SPARE,
    )


def _row(row: Row) -> list[object]:
    at = row.at
    return [*at.partition, at.lag, at.seconds, row.records, row.dead, row.share, row.seconds_to_close, at.problem]
