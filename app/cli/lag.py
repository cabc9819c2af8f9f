"""`winnow lag`: shows how far the group is behind."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from app.cli.layout import View
from app.cli.options import clients, configured, interval
from app.cli.screen import Screen, run_screen
from app.cli.tables import as_json, has_screen, repeat, show
from app.config import Config
from app.model import Pause
from app.operate import lag as lags
from app.operate.watching import Look, WatchedLag

OFFSETS = ("#CURRENT-OFFSET", "#LAST-STABLE-OFFSET", "#LOG-END-OFFSET")
SPARE = ("LAST-STABLE-OFFSET", "LOG-END-OFFSET", "LAG-TO-END", "CURRENT-OFFSET")
COLUMNS = ("TOPIC", "#PARTITION", *OFFSETS, "#LAG", "#LAG-TO-END", "#LAG-SECONDS", "?PROBLEM")


@click.command(epilog="Example: winnow lag --watch")
@configured
@click.option("--watch", "again", is_flag=True, help="Look again and again, the worst first, until q or Ctrl-C.")
@interval
@as_json
def lag(settings: Config, *, again: bool, interval: float, as_json: bool) -> int:
    """
    Show the group's lag in each partition.

    The service may be running. Exits with 1 if a partition or its offset has a problem.
    """
    from app.start import ages, first_records

    kafka, group = clients(settings), settings.group_id
    if again and has_screen(as_json=as_json):
        watched = WatchedLag(lambda: Look.of(settings, kafka), ages(settings), interval)
        run_screen(LagScreen(group, watched))
        return 0
    records = first_records(settings.kafka, group)

    def look() -> View:
        measured = lags.measure(settings, kafka, records, time.time())
        return _view(group, sorted(measured, key=lags.severity) if again else measured, kafka.pauses.read())

    return repeat(look, interval, as_json=as_json) if again else show(look(), as_json=as_json)


class LagScreen(Screen):
    """The lag as a screen, the worst partition first."""

    name = "winnow lag"

    def _found(self, look: Look, _width: int) -> tuple[Sequence[str], View, str]:
        return (), _view(self._group, sorted(self._watched.found, key=lags.severity), look.pause), "q quit"


def _view(group: str, found: list[lags.PartitionLag], pause: Pause | None) -> View:
    total, paused = lags.summed(found), pause._asdict() if pause else None
    partitions = [each.as_json() for each in found]
    return View(
        columns=COLUMNS,
        rows=[_row(each) for each in found],
        value={"version": 1, "group": group, **total, "paused": paused, "partitions": partitions},
        code=1 if any(each.problem for each in found) else 0,
        footer=f"group {group}: lag {total['lag']}, at most {total['max_lag_seconds']:.1f} s{lags.notes(found, pause)}",
        spare=SPARE,
    )


def _row(at: lags.PartitionLag) -> list[object]:
    _, last_stable, high_watermark = at.watermarks or (None, None, None)
    return [*at.partition, at.offset, last_stable, high_watermark, at.lag, at.lag_to_end, at.seconds, at.problem]
