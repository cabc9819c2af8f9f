"""How commands print what they find: as a table or as JSON, once or repeatedly."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress
from rich.text import Text

from app.cli.layout import View, fitted
from app.errors import Unreachable

WATCH_SECONDS = 2.0
"""The refresh interval of `--watch`."""
# Lines that go to a file or a pipe are never wrapped.
UNLIMITED = 100_000

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def show(view: View, *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(view.value, ensure_ascii=False))
    else:
        console = _console()
        for line in fitted(view, console.width).lines:
            console.print(line, soft_wrap=True)  # what is longer than the terminal is wrapped by it, and never cut
    return view.code


def watch(look: Callable[[], View], *, as_json: bool) -> int:
    """Refresh a view every WATCH_SECONDS until Ctrl-C: in place on a terminal, otherwise below the last one."""
    console = _console()
    screen = Live(console=console, auto_refresh=False, screen=True) if console.is_terminal and not as_json else None
    with contextlib.suppress(KeyboardInterrupt), screen or contextlib.nullcontext():
        while True:
            _show_again(look, screen, as_json=as_json)
            time.sleep(WATCH_SECONDS)
    return 0


def _show_again(look: Callable[[], View], screen: Live | None, *, as_json: bool) -> None:
    """Show a view, or the error while Kafka is unreachable, so that watching continues."""
    try:
        if screen:
            page = fitted(look(), screen.console.width)
            screen.update(Group(*page.within(screen.console.height)), refresh=True)
        else:
            show(look(), as_json=as_json)
    except Unreachable as error:
        if screen:
            screen.update(Text(str(error), style="red"), refresh=True)
        else:
            click.echo(f"winnow: {error}", err=True)


@contextlib.contextmanager
def progress(doing: str, total: int) -> Iterator[Callable[..., object]]:
    """Show a progress bar on a terminal; yield the function that advances it."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        yield partial(bar.advance, bar.add_task(doing, total=total))


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=UNLIMITED)
