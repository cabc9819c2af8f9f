"""A screen that is drawn again in place and obeys keys, until `q` or Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from app.cli.layout import View, fitted, wrapped
from app.cli.tables import exact, exactly
from app.operate.watching import Look, WatchedLag

TICK_SECONDS = 0.25
"""How long to wait for a key before the clock and the figures are looked at again."""
ESCAPE = "\x1b"


class Screen(ABC):
    """The lag of a group as a screen that `q` ends: a title with the clock, an error, a table, and what the keys do."""

    name: ClassVar[str]

    def __init__(self, group: str, watched: WatchedLag) -> None:
        self._group = group
        self._watched = watched

    def poll(self) -> None:
        """Take in what is new; never wait."""
        self._watched.poll()

    def press(self, key: str) -> bool:
        """Obey a key; return whether to go on."""
        return key != "q"

    def leave(self) -> None:
        """End what it does in the background."""
        self._watched.leave()

    def lines(self, width: int, height: int) -> Sequence[Text]:
        """Return what to show, in this many columns and lines."""
        clock = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        title = f"{self.name}  {self._group}"
        head = [Text(f"{title:<{max(0, width - len(clock) - 2)}}  {clock}", style="bold")]
        head += wrapped(exact(self._watched.trouble), width, style="red")
        if self._watched.look is None:
            return [*head, Text("reading the offsets")]
        totals, view, keys = self._found(self._watched.look, width)
        head += map(Text, totals)
        page = fitted(exactly(view), width).within(height - len(head) - 1)
        return [*head, *page, Text(keys, style="reverse")]

    @abstractmethod
    def _found(self, look: Look, width: int) -> tuple[Sequence[str], View, str]:
        """Return the lines above the table, the table, and what the keys do."""


class Keys:
    """The keys that are pressed, each at once and without an echo; none if stdin is no terminal."""

    def __init__(self, file: int | None = None) -> None:
        self._file = sys.stdin.fileno() if file is None else file
        self._before = termios.tcgetattr(self._file) if os.isatty(self._file) else None

    def __enter__(self) -> Self:
        if self._before is not None:
            tty.setcbreak(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def pressed(self, seconds: float) -> str:
        """Return the keys pressed within this time; those that send a sequence, such as arrows, are left out."""
        if self._before is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._file], [], [], seconds)
        typed = os.read(self._file, 256).decode(errors="ignore") if ready else ""
        return "" if typed.startswith(ESCAPE) and typed != ESCAPE else typed


def run_screen(screen: Screen) -> None:
    """Show a screen at once, and until a key, Ctrl-C or SIGTERM ends it; then the terminal is as before."""
    console = Console(highlight=False)
    drawn: Sequence[Text] = ()
    live = Live(console=console, auto_refresh=False, screen=True)
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        # SIGTERM raises KeyboardInterrupt, as Ctrl-C does.
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.default_int_handler))
        keys = stack.enter_context(Keys())
        stack.enter_context(live)
        going = True
        while going:
            screen.poll()
            if (lines := screen.lines(*console.size)) != drawn:
                live.update(Group(*lines), refresh=True)
                drawn = lines
            going = all(map(screen.press, keys.pressed(TICK_SECONDS)))
    screen.leave()
