"""How commands print what they find: as a table or as JSON, once or repeatedly, with commands that can be copied."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from app.cli.layout import View, fitted
from app.cures import PLACEHOLDERS, CommandLine
from app.errors import Unreachable

# Lines that go to a file or a pipe are never wrapped.
UNLIMITED = 100_000
# Where click's context keeps the command line.
LINE = __name__

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def has_read(options: str) -> None:
    """Note the options that name the running command's configuration."""
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[LINE] = CommandLine(options)


def exact(text: str) -> str:
    """Return a text whose commands can be copied; they keep their placeholders if no configuration was read."""
    context = click.get_current_context(silent=True)
    return text if context is None else context.meta.get(LINE, PLACEHOLDERS).exact(text)


def exactly(view: View) -> View:
    """Return a view with exact problems, as JSON, too. All else may quote records, and stays as it is."""
    ours = [heading == "?PROBLEM" for heading in view.columns]
    if not any(ours):
        return view
    rows = [
        [exact(cell) if own and isinstance(cell, str) else cell for own, cell in zip(ours, row, strict=True)]
        for row in view.rows
    ]
    value = view.value and view.value | {"partitions": [*map(_exactly, view.value["partitions"])]}
    return view._replace(rows=rows, value=value)


def _exactly(partition: dict[str, Any]) -> dict[str, Any]:
    return partition | {"problem": partition["problem"] and exact(partition["problem"])}


def has_screen(*, as_json: bool) -> bool:
    """Whether what is watched is drawn in place: on a terminal, from which keys come, too."""
    return not as_json and stdout().is_terminal


def print_json(value: object, *, indent: int | None = None, err: bool = False) -> None:
    """Print JSON in UTF-8, which JSON is by definition, whatever the encoding of the stream is."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    click.echo(text.encode(errors="backslashreplace"), err=err)  # a lone surrogate becomes its escape in JSON


def show(view: View, *, as_json: bool) -> int:
    view = exactly(view)
    if as_json:
        print_json(view.value)
    else:
        console = stdout()
        for line in fitted(view, console.width).lines:
            console.print(line, soft_wrap=True)  # what is longer than the terminal is wrapped by it, and never cut
    return view.code


def repeat(look: Callable[[], View], seconds: float, *, as_json: bool) -> int:
    """Print a view every so many seconds until Ctrl-C; go on while Kafka is unreachable."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            try:
                show(look(), as_json=as_json)
            except Unreachable as error:
                click.echo(exact(f"winnow: {error}"), err=True)
            time.sleep(seconds)
    return 0


@contextlib.contextmanager
def steps(unit: str = "offsets") -> Iterator[Callable[[str, int], Callable[[int], object]]]:
    """
    Show a progress bar on a terminal, and nothing elsewhere.

    Yield the function that begins a step: it receives what is done and how much there is, and returns what advances it.
    """
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(20), TaskProgressColumn(), RateColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:

        def step(doing: str, total: int) -> Callable[[int], object]:
            for task in bar.task_ids:
                bar.remove_task(task)
            return partial(bar.advance, bar.add_task(doing, total=total, unit=unit))

        yield step


class RateColumn(ProgressColumn):
    """How many are done per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} {task.fields['unit']}/s" if task.speed else "")


@contextlib.contextmanager
def progress(doing: str, total: int, unit: str = "offsets") -> Iterator[Callable[[int], object]]:
    """Show a progress bar for one step; yield the function that advances it."""
    with steps(unit) as step:
        yield step(doing, total)


class Stdout(Console):
    """A console that leaves a closed pipe to `reports_errors`: rich would exit with 1, which stands for findings."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout() -> Console:
    """Return a console on stdout, as wide as the terminal, or else as good as any number."""
    console = Stdout(highlight=False)
    return console if console.is_terminal else Stdout(highlight=False, width=UNLIMITED)
