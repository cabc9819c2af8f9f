"""`winnow lag`: shows how far the group is behind."""

from __future__ import annotations

import time

import click

from app.cli.layout import View
from app.cli.options import clients, configured
from app.cli.tables import as_json, show, watch
from app.config import Config
from app.model import Pause
from app.operate import lag as lags

OFFSETS = ("#CURRENT-OFFSET", "#LAST-STABLE-OFFSET", "#LOG-END-OFFSET")
SPARE = ("LAST-STABLE-OFFSET", "LOG-END-OFFSET", "LAG-TO-END", "CURRENT-OFFSET")
COLUMNS = ("TOPIC", "#PARTITION", *OFFSETS, "#LAG", "#LAG-TO-END", "#LAG-SECONDS", "?PROBLEM")


@click.command()
@configured
@click.option("--watch", "again", is_flag=True, help="Refresh every two seconds until Ctrl-C.")
@as_json
def lag(settings: Config, *, again: bool, as_json: bool) -> int:
    """
    Show the group's lag in each partition.

    The service may be running. Exits with 1 if a partition or its offset has a problem.
    """
    from app.start import first_records

    kafka, records = clients(settings), first_records(settings)

    def look() -> View:
        measured = lags.measure(settings, kafka, records, time.time())
        return _view(settings.group_id, measured, kafka.pauses.read())

    return watch(look, as_json=as_json) if again else show(look(), as_json=as_json)


def _view(group: str, found: list[lags.PartitionLag], pause: Pause | None) -> View:
    total, paused = lags.summed(found), pause._asdict() if pause else None
    partitions = [each.as_json() for each in found]
    return View(
        columns=COLUMNS,
        rows=[_row(each) for each in found],
        value={"version": 1, "group": group, **total, "paused": paused, "partitions": partitions},
        code=1 if any(each.problem for each in found) else 0,
        footer=f"group {group}: lag {total['lag']}, at most {total['max_lag_seconds']:.1f} s"
        + lags.unknown(found)
        + (f"; {pause}" if pause else ""),
        spare=SPARE,
    )


def _row(at: lags.PartitionLag) -> list[object]:
    _, last_stable, high_watermark = at.watermarks or (None, None, None)
    return [*at.partition, at.offset, last_stable, high_watermark, at.lag, at.lag_to_end, at.seconds, at.problem]
