"""How a table fits a width: no number and no place is ever cut. Spare columns go, and prose goes below its row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from app.operate.reading import printable

UNKNOWN = "-"
"""Shown for a missing value, as in Kafka's own tools."""
GAP = "  "
_CONSOLE = Console()


class View(NamedTuple):
    """
    What a command has found.

    Args:
        columns: the table's headings; those of numbers begin with `#`, those of prose with `?`. Prose comes last, and
            is shown only if a row has some.
        rows: the cells; None is shown as a dash.
        value: the same as JSON.
        footer: a line below the table.
        spare: the headings that are left out where the table is too wide, the first one first.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    value: Any
    code: int = 0
    footer: str = ""
    spare: Sequence[str] = ()


class Page(NamedTuple):
    """A view in a width: the lines of the head, of each row, and of what follows."""

    head: Sequence[Text]
    rows: Sequence[Sequence[Text]]
    foot: Sequence[Text]
    gone: Sequence[str] = ()
    """The headings that are left out."""

    @property
    def lines(self) -> list[Text]:
        return [*self.head, *(line for row in self.rows for line in row), *self.foot]

    def within(self, height: int) -> list[Text]:
        """Return this many lines at most: without the last rows if need be, and then with how many are shown."""
        room = height - len(self.head) - len(self.foot)
        ends = [*accumulate(map(len, self.rows))]
        if not ends or ends[-1] <= room:
            return self.lines
        count = bisect_right(ends, room - 1)
        said = Text(f"the first {count} of {len(ends)}", style="dim")
        return self._replace(rows=self.rows[:count], foot=[said, *self.foot]).lines


def fitted(view: View, width: int) -> Page:
    """Lay a view out. A line is longer than the width only if a row without its prose and spare columns is."""
    table = _Table(view, width)
    gone = f"not shown in {width} columns: {', '.join(table.gone)}" if table.gone else ""
    foot = [*wrapped(gone, width, style="dim"), *wrapped(view.footer, width)]
    if not view.rows and view.footer:
        return Page([], [], foot)
    head = table.lines(table.names, style="bold")
    return Page(head, [table.lines([*map(_cell, row)]) for row in view.rows], foot, table.gone)


class _Table:
    """Which columns stand beside each other in a width, which go below their row, and which are gone."""

    def __init__(self, view: View, width: int) -> None:
        self._width = width
        self.names = [each.lstrip("#?") for each in view.columns]
        self._marks = [each[0] for each in view.columns]
        columns = zip(self.names, *(map(_cell, row) for row in view.rows), strict=True)
        self._sizes = [max(map(cell_len, column)) for column in columns]
        self._beside = [n for n, mark in enumerate(self._marks) if mark != "?"]
        self._below = [n for n, mark in enumerate(self._marks) if mark == "?" and any(row[n] for row in view.rows)]
        self.gone: list[str] = []
        for name in view.spare:
            if not self._fit(self._beside):
                self._beside.remove(self.names.index(name))
                self.gone.append(name)
        while self._below and self._fit([*self._beside, self._below[0]]):
            self._beside.append(self._below.pop(0))

    def _fit(self, columns: Sequence[int]) -> bool:
        return sum(self._sizes[n] for n in columns) + len(GAP) * (len(columns) - 1) <= self._width

    def lines(self, cells: Sequence[str], style: str = "") -> list[Text]:
        """Return the lines of a row; its prose stands beside it if it fits, or else below it."""
        line = GAP.join(self._padded(n, cells[n]) for n in self._beside)
        if not (prose := GAP.join(cells[n] for n in self._below if cells[n])):
            return [Text(line.rstrip(), style)]
        if cell_len(whole := line + GAP + prose) <= self._width:
            return [Text(whole, style)]
        below = wrapped(prose, self._width - len(GAP), style)
        return [Text(line.rstrip(), style), *(Text(GAP, style) + each for each in below)]

    def _padded(self, column: int, cell: str) -> str:
        space = " " * (self._sizes[column] - cell_len(cell))
        return space + cell if self._marks[column] == "#" else cell + space


def wrapped(text: str, width: int, style: str = "") -> list[Text]:
    """Return the lines of a text in a width; none if it is empty."""
    lines = [*Text(text, style).wrap(_CONSOLE, max(1, width), overflow="fold")] if text else []
    for each in lines:
        each.rstrip()
    return lines


def _cell(value: object) -> str:
    match value:
        case None:
            return UNKNOWN
        case float():
            return f"{value:.1f}"
        case [*parts]:
            return ", ".join(map(_cell, parts))
    return printable(str(value))
