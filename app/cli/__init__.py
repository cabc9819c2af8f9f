"""The command line: one file for each command, without logic. Only here argv is read and the exit code set."""

from __future__ import annotations

import click

from app import __version__
from app.cli.check import check
from app.cli.demo import demo
from app.cli.offsets import offsets
from app.cli.parse import parse
from app.cli.run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="winnow")
def main() -> None:
    """Cleanse Kafka log topics on Spark, exactly once."""


for command in (run, check, parse, offsets, demo):
    main.add_command(command)
