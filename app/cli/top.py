"""`winnow top`: shows the lag and rates of the partitions, live."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import cycle

import click

from app.cli.layout import UNKNOWN, View
from app.cli.options import clients, configured, interval
from app.cli.screen import ESCAPE, Screen, run_screen
from app.cli.tables import as_json, has_screen, repeat
from app.config import Config
from app.model import Pause
from app.operate.lag import measure, notes
from app.operate.watching import ORDERS, Look, Row, WatchedLag, chosen, rows, summed

RATES = ("#RECORDS/S", "#DEAD/S", "#DEAD-%")
COLUMNS = ("TOPIC", "#PARTITION", "#LAG", "#LAG-SECONDS", *RATES, "#CLOSES-IN-S", "?PROBLEM")
SPARE = ("DEAD-%", "CLOSES-IN-S", "DEAD/S")
BARS = "▁▂▃▄▅▆▇█"
HISTORY = 200
"""More looks than a terminal has columns."""
BACKSPACE, ENTER = "\x7f\b", "\r\n"


@click.command(epilog="Example: winnow top --interval 5")
@configured
@interval
@as_json
def top(settings: Config, *, interval: float, as_json: bool) -> int:
    """
    Show the lag and rates of the partitions, live.

    Lists the worst first until q or Ctrl-C; s sorts by something else, and / shows only the partitions with a text in
    their name or problem. Changes nothing, and does not need the service's HTTP port.
    """
    from app.start import ages, first_records

    kafka, group = clients(settings), settings.group_id
    if has_screen(as_json=as_json):
        run_screen(TopScreen(group, WatchedLag(lambda: Look.of(settings, kafka), ages(settings), interval)))
        return 0
    records = first_records(settings.kafka, group)
    before: Look | None = None

    def look() -> View:
        nonlocal before
        now = Look(time.monotonic(), measure(settings, kafka, records, time.time()), kafka.pauses.read())
        found, before = rows(before, now), now
        return _view(group, found, now.pause)

    return repeat(look, interval, as_json=as_json)


class TopScreen(Screen):
    """The partitions with their rates, as a screen."""

    name = "winnow top"

    def __init__(self, group: str, watched: WatchedLag) -> None:
        super().__init__(group, watched)
        self._before: Look | None = None
        self._now: Look | None = None
        self._rates = deque[float](maxlen=HISTORY)
        self._orders = cycle(ORDERS)
        self._order = next(self._orders)
        self._text = ""
        self._typing = False

    def poll(self) -> None:
        super().poll()
        if (look := self._watched.look) is None:
            return
        now = look._replace(found=self._watched.found)
        if self._now is None or self._now.at != now.at:
            self._before = self._now
            if self._before is not None:
                self._rates.append(summed(rows(self._before, now))["records_per_second"])
        self._now = now  # the same look again may have more ages

    def press(self, key: str) -> bool:
        if self._typing:
            self._type(key)
        elif key == "s":
            self._order = next(self._orders)
        elif key == "/":
            self._typing, self._text = True, ""
        return self._typing or super().press(key)

    def _type(self, key: str) -> None:
        if key in ENTER or key == ESCAPE:
            self._typing = False
            self._text = "" if key == ESCAPE else self._text
        elif key in BACKSPACE:
            self._text = self._text[:-1]
        elif key.isprintable():
            self._text += key

    def _found(self, look: Look, width: int) -> tuple[Sequence[str], View, str]:
        assert self._now is not None  # there is a look
        every = rows(self._before, self._now)
        found = chosen(every, self._order, self._text)
        footer = notes([each.at for each in every], look.pause).removeprefix("; ")
        view = View(COLUMNS, [_row(each) for each in found], None, footer=footer, spare=SPARE)
        most = f"  at most {max(self._rates)}" if self._rates else ""
        trend = f"records/s {sparkline(self._rates, width - len(most) - 10)}{most}"
        return (_totals(every), trend), view, self._status(len(found), len(every))

    def _status(self, shown: int, every: int) -> str:
        if self._typing:
            return f"only partitions with: {self._text}▏  Enter keeps it, Esc shows all"
        only = f"{shown} of {every} partitions with {self._text!r}" if self._text else f"{every} partitions"
        return f"{only} by {self._order}   s sort  / filter  q quit"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last values as bars of up to this height: the largest has the full one."""
    last = list(values)[-width:] if width > 0 else []
    most = max(last, default=0)
    return "".join(BARS[round(each / most * (len(BARS) - 1)) if most else 0] for each in last)


def _totals(found: Sequence[Row]) -> str:
    """Return what all partitions are together; a dash stands for what is not known of any."""
    total = summed(found)
    ages = [each.at.seconds for each in found if each.at.lag]
    known = [each for each in ages if each is not None]
    age = UNKNOWN if ages and not known else f"{max(known, default=0.0):.1f}"
    rates = [total["records_per_second"], total["dead_letters_per_second"]]
    records, dead = rates if any(each.records is not None for each in found) else [UNKNOWN, UNKNOWN]
    return f"lag {total['lag']}, at most {age} s; {records} records/s, {dead} dead letters/s"


def _view(group: str, found: list[Row], pause: Pause | None) -> View:
    paused, partitions = pause._asdict() if pause else None, [each.as_json() for each in found]
    return View(
        columns=COLUMNS,
        rows=[_row(each) for each in found],
        value={"version": 1, "group": group, **summed(found), "paused": paused, "partitions": partitions},
        footer=f"group {group}: {_totals(found)}; {len(found)} partitions" + notes([each.at for each in found], pause),
        spare=SPARE,
    )


def _row(row: Row) -> list[object]:
    at = row.at
    return [*at.partition, at.lag, at.seconds, row.records, row.dead, row.share, row.seconds_to_close, at.problem]
