"""`winnow parsers`: lists the parsers with their options."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from textwrap import TextWrapper, indent
from typing import Any

import click

from app.cli.options import reports_errors
from app.cli.tables import as_json, print_json, stdout
from app.errors import built
from parsers import registry
from parsers.errors import UnknownParser
from parsers.plugins import Description

Found = Description | str
"""A parser's description, or why it cannot be used."""


@click.command(epilog="Example: winnow parsers csv")
@click.argument("name", required=False)
@as_json
@reports_errors
def parsers(name: str | None, as_json: bool) -> int:  # noqa: FBT001  # click's flag
    """List the parsers with their options and an example each. With NAME, show only that one."""
    if name is None:
        found = {each: _found(each) for each in registry.names()}
    else:
        found = {name: built("NAME", partial(registry.describe, name))}
    if as_json:
        print_json({"version": 1, "parsers": [_as_json(each, about) for each, about in found.items()]})
    else:
        click.echo("\n\n".join("\n".join(_lines(each, about, stdout().width)) for each, about in found.items()))
    return 0


def _found(name: str) -> Found:
    """Describe a parser; one of another package that is broken must not hide the others."""
    try:
        return registry.describe(name)
    except UnknownParser as error:
        return str(error)


def _as_json(name: str, about: Found) -> dict[str, Any]:
    if isinstance(about, str):
        return {"name": name, "summary": None, "options": [], "example": None, "problem": about}
    options = [each._asdict() for each in about.options]
    example = about.example or None
    return {"name": name, "summary": about.summary, "options": options, "example": example, "problem": None}


def _lines(name: str, about: Found, width: int) -> Iterator[str]:
    prose = TextWrapper(
        width, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )
    if isinstance(about, str):
        yield prose.fill(f"{name}: {about}")
        return
    yield prose.fill(f"{name}: {about.summary}")
    for option in about.options:
        default = "required" if option.default is None else option.default
        yield prose.fill(f"  {option.name} ({default}): {option.meaning}")
    if about.example:
        yield "  parser:"
        yield indent(about.example, "    ")
