"""How commands print what they find: as a table or as JSON, once or repeatedly."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from app.errors import Unreachable

WATCH_SECONDS = 2.0
"""The refresh interval of `--watch`."""
UNKNOWN = "-"
"""Shown for a missing value, as in Kafka's own tools."""
# Lines that go to a file or a pipe are never wrapped.
UNLIMITED = 100_000

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


class View(NamedTuple):
    """
    What a command has found.

    Args:
        columns: the table's headings; those of numbers begin with `#`, those that are shown only if not empty with `?`.
        rows: the cells; None is shown as a dash.
        value: the same as JSON.
        footer: a line below the table.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    value: Any
    code: int = 0
    footer: str = ""


def show(view: View, *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(view.value, ensure_ascii=False))
    else:
        _console().print(_drawn(view) if view.columns else view.footer, soft_wrap=True)
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
            screen.update(_drawn(look()), refresh=True)
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


def _drawn(view: View) -> Table | Group:
    table = Table(box=None, pad_edge=False, header_style="bold")
    drawn = [n for n, name in enumerate(view.columns) if name[0] != "?" or any(row[n] for row in view.rows)]
    for name in (view.columns[n] for n in drawn):
        table.add_column(name.lstrip("#?"), justify="right" if name[0] == "#" else "left", no_wrap=True)
    for row in view.rows:
        table.add_row(*(_cell(row[n]) for n in drawn))
    return Group(table, Text(view.footer)) if view.footer else table


def _cell(value: object) -> Text:
    match value:
        case None:
            return Text(UNKNOWN)
        case float():
            return Text(f"{value:.1f}")
        case [*parts]:
            return Text(", ".join(map(str, parts)))
    return Text(str(value))
