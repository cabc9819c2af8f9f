"""The commands of the product."""

from __future__ import annotations

from collections.abc import Iterator

import click

from app.cli import main


def leaves(group: click.Group = main, name: str = "winnow") -> Iterator[tuple[str, click.Command]]:
    """Yield each command that does something, with what is typed for it."""
    for each, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{name} {each}")
        else:
            yield f"{name} {each}", command


LEAVES = dict(leaves())
"""Each command that is no group, by its whole name."""
