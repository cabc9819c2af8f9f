"""`winnow parsers`: lists the parsers with their options."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import TextWrapper, indent

import click

from app.cli.options import reports_errors
from app.cli.tables import as_json, print_json, stdout
from app.errors import built
from app.operate.catalogue import ParserEntry, catalogue


@click.command(epilog="Example: winnow parsers csv")
@click.argument("name", required=False)
@as_json
@reports_errors
def parsers(name: str | None, as_json: bool) -> int:  # noqa: FBT001  # click's flag
    """List the parsers with their options and an example each. With NAME, show only that one."""
    found = built("NAME", lambda: catalogue(name))
    if as_json:
        print_json({"version": 1, "parsers": [each.as_json() for each in found]})
    else:
        click.echo("\n\n".join("\n".join(_lines(each, stdout().width)) for each in found))
    return 0


def _lines(entry: ParserEntry, width: int) -> Iterator[str]:
    prose = TextWrapper(
        width, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )
    if (described := entry.description) is None:
        yield prose.fill(f"{entry.name}: {entry.problem}")
        return
    yield prose.fill(f"{entry.name}: {described.summary}")
    for option in described.options:
        default = "required" if option.default is None else option.default
        yield prose.fill(f"  {option.name} ({default}): {option.meaning}")
    if described.example:
        yield "  parser:"
        yield indent(described.example, "    ")
