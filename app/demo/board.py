"""The demo's display while the service runs: a spinner, then a table; lines if the output is a pipe."""

from __future__ import annotations

import time
from collections import deque
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from app.demo.verify import VerificationResult

SPEED_SECONDS = 1.0
LINE_SECONDS = 2.0


class Speed:
    """Records per second, from committed offsets over time."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()
        self.now = self.fastest = 0.0

    def add(self, done: int, at: float) -> None:
        """Add what is committed now; the speed is that of the last second."""
        self._samples.append((at, done))
        while len(self._samples) > 2 and at - self._samples[1][0] >= SPEED_SECONDS:
            self._samples.popleft()
        since, before = self._samples[0]
        if (seconds := at - since) >= SPEED_SECONDS:
            self.now = (done - before) / seconds
            self.fastest = max(self.fastest, self.now)


class Board:
    """Shows the progress of the service, by its committed offsets, and of the verification."""

    def __init__(self, console: Console, records: int, title: str) -> None:
        self._console, self._records, self._title = console, records, title
        self._speed = Speed()
        self._spinner = Spinner("dots", Text("starting Spark"))
        self._live = Live(self._spinner, console=console, refresh_per_second=8) if console.is_terminal else None
        self._line_at = 0.0
        self._reported: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        else:
            self._console.print("  starting Spark")
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, done: int, seen: VerificationResult, *, ended: bool = False) -> None:
        if not ended:  # the speed between the last look and the end is unknown
            self._speed.add(done, time.monotonic())
        if not done and not ended:
            return
        if self._live:
            self._live.update(self._drawn(done, seen, ended=ended))
        else:
            self._report(done, seen)

    def _drawn(self, done: int, seen: VerificationResult, *, ended: bool) -> Table | Group:
        table = Table(title=self._title, title_justify="left", title_style="")
        for name in ("cleansed", "lag", "records/s", "fastest", "verified", "out", "dead letters"):
            table.add_column(name, justify="right")
        now = f"{self._speed.now:,.0f}" if done < self._records else "-"
        service = f"{done:,}", f"{self._records - done:,}", now, f"{self._speed.fastest:,.0f}"
        table.add_row(*service, f"{seen.out + seen.dead:,}", f"{seen.out:,}", f"{seen.dead:,}")
        for reason, count in sorted(seen.dead_by_reason.items(), key=lambda item: -item[1]):
            table.add_row("", "", "", "", "", "", f"[dim]{reason}[/] {count:,}")
        if ended and seen.out + seen.dead < self._records:
            return Group(table, Spinner("dots", Text("the service has finished; verifying")))
        return table

    def _report(self, done: int, seen: VerificationResult) -> None:
        verified = seen.out + seen.dead
        complete = verified == self._records
        if (done, verified) == self._reported or (time.monotonic() - self._line_at < LINE_SECONDS and not complete):
            return
        self._line_at, self._reported = time.monotonic(), (done, verified)
        lag = self._records - done
        service = f"cleansed {done:,}, lag {lag:,}, fastest {self._speed.fastest:,.0f} records/s"
        speed = f", now {self._speed.now:,.0f}" if lag else ""
        self._console.print(f"  {service}{speed}; verified {verified:,}", highlight=False, soft_wrap=True)
