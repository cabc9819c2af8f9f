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
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from app.cli.layout import wrapped

TICK_SECONDS = 0.25
"""How long to wait for a key before the clock and the figures are looked at again."""
ESCAPE = "\x1b"


class Screen(Protocol):
    """What is shown."""

    def poll(self) -> object:
        """Take in what is new; never wait."""

    def press(self, key: str) -> bool:
        """Obey a key; return whether to go on."""

    def lines(self, width: int, height: int) -> Sequence[Text]:
        """Return what to show, in this many columns and lines."""

    def leave(self) -> None:
        """End what it does in the background."""


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
    with contextlib.suppress(KeyboardInterrupt), _interrupted_by(signal.SIGTERM), Keys() as keys, live:
        going = True
        while going:
            screen.poll()
            if (lines := screen.lines(*console.size)) != drawn:
                live.update(Group(*lines), refresh=True)
                drawn = lines
            going = all(map(screen.press, keys.pressed(TICK_SECONDS)))
    screen.leave()


@contextlib.contextmanager
def _interrupted_by(number: signal.Signals) -> Iterator[None]:
    """Let a signal raise KeyboardInterrupt, as Ctrl-C does."""
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def title(text: str, width: int) -> Text:
    """Return a line with the clock at its right end."""
    clock = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Text(f"{text:<{max(0, width - len(clock) - 2)}}  {clock}", style="bold")


def trouble_lines(text: str, width: int) -> list[Text]:
    """Return the lines of an error; none if there is none."""
    return wrapped(text, width, style="red")


def key_line(text: str) -> Text:
    """Return the last line, which says what the keys do."""
    return Text(text, style="reverse")
