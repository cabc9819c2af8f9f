"""Groups of commands, listed by what a person wants to do."""

from __future__ import annotations

import inspect
import re
from typing import Any

import click

SENTENCE = re.compile(r".*?\.(?=\s|$)", re.DOTALL)


class CommandGroup(click.Group):
    """Lists its commands under headings, in their order, each with one whole sentence."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # click's own
        super().__init__(*args, **kwargs)
        self._headings: dict[str, list[str]] = {}

    def add(self, heading: str, *commands: click.Command) -> None:
        """Add commands under a heading."""
        for command in commands:
            self.add_command(command)
            self._headings.setdefault(heading, []).append(str(command.name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        """Write the sections of the help that list the commands."""
        width = max(map(len, self.commands))
        for heading, names in (self._headings or {"Commands": list(self.commands)}).items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", summary(self.commands[name])) for name in names])


def summary(command: click.Command) -> str:
    """Return the first sentence of a command's help."""
    found = SENTENCE.match(inspect.cleandoc(command.help or ""))
    return " ".join(found[0].split()) if found else ""
