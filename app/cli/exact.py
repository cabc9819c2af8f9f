"""Texts with the commands that can be copied: they name the configuration that the running command has read."""

from __future__ import annotations

from typing import Any

import click

from app.cli.layout import View
from app.cures import PLACEHOLDERS, CommandLine

# Where click's context keeps the command line.
LINE = __name__


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
