"""Texts with the commands that can be copied: they name the configuration that the running command has read."""

from __future__ import annotations

import click

from app.cli.layout import View
from app.cures import PLACEHOLDERS, CommandLine

LINE = __name__


def has_read(options: str) -> None:
    """Note the options that name the running command's configuration."""
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[LINE] = CommandLine(options)


def exact(text: str) -> str:
    context = click.get_current_context(silent=True)
    return text if context is None else context.meta.get(LINE, PLACEHOLDERS).exact(text)


def exactly(view: View) -> View:
    """Return a table with exact problems. Other columns may quote records, which stay as they are."""
    ours = [heading == "?PROBLEM" for heading in view.columns]
    rows = [
        [exact(cell) if own and isinstance(cell, str) else cell for own, cell in zip(ours, row, strict=True)]
        for row in view.rows
    ]
    return view._replace(rows=rows)
