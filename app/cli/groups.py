"""Groups of commands, listed by what a person wants to do."""

from __future__ import annotations

from typing import Any

import click


class CommandGroup(click.Group):
    """Lists its commands under headings, in their order, each with one whole sentence."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # click's own
        super().__init__(*args, **kwargs)
        self._headings: dict[str, list[str]] = {}

    def add(self, heading: str, *commands: click.Command) -> None:
        for command in commands:
            self.add_command(command)
            self._headings.setdefault(heading, []).append(str(command.name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        width = max(map(len, self.commands))
        # The whole first sentence, from which click before 8.5 takes the full stop.
        said = {name: f"{each.get_short_help_str(1_000).rstrip('.')}." for name, each in self.commands.items()}
        for heading, names in (self._headings or {"Commands": list(self.commands)}).items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", said[name]) for name in names])
