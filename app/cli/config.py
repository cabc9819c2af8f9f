"""`winnow config`: shows the configuration and where each value comes from."""

from __future__ import annotations

from pathlib import Path

import click

from app import config
from app.cli.options import configuration, overrides, reports_errors
from app.cli.tables import as_json, print_json


@click.command("config", epilog="Example: winnow config --set round.interval=5s")
@configuration
@overrides
@click.option("--schema", is_flag=True, help="Print the file's JSON schema instead, for editors.")
@as_json
@reports_errors
def show_config(file: Path | None, assignments: tuple[str, ...], schema: bool, as_json: bool) -> int:  # noqa: FBT001  # click's flags
    """Show each value and its origin. The origin is a file and line, a variable or an option; secrets are masked."""
    if schema:
        print_json(config.schema(), indent=2)
        return 0
    loaded = config.read(file, assignments)
    if as_json:
        values = [each._asdict() for each in config.values(loaded)]
        print_json({"version": 1, "values": values})
    else:
        click.echo(config.shown(loaded), nl=False)
    return 0
