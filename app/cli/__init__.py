"""The command line, a file per command. Only this package reads argv and sets the exit code; it decides nothing."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from pathlib import Path

import click

from app import __version__
from app.cli.audit import audit
from app.cli.check import check
from app.cli.config import show_config
from app.cli.demo import demo
from app.cli.dlq import dlq
from app.cli.doctor import doctor
from app.cli.filters import filters
from app.cli.groups import CommandGroup
from app.cli.init import init
from app.cli.lag import lag
from app.cli.offsets import offsets
from app.cli.parse import parse
from app.cli.parsers import parsers
from app.cli.pause import pause, resume
from app.cli.replay import replay
from app.cli.run import run
from app.cli.tap import tap
from app.cli.top import top
from app.cli.transactions import transactions


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="winnow COMMAND --help shows the options of a command, and an example.",
)
@click.version_option(__version__, prog_name="winnow")
def main() -> None:
    """Cleanse Kafka log topics on Spark, exactly once."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # no character that it lacks ends a command, as on stderr
    if sys.stdin is None:  # closed by `<&-`: what asks or reads would fail, and a pipe would get its descriptor
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  # open until the command ends


main.add("Run it", init, check, show_config, run)
main.add("Look at it", doctor, lag, top, filters, tap, audit)
main.add("Act on it", pause, resume, dlq, replay, offsets, transactions)
main.add("Develop and try", parse, parsers, demo)
