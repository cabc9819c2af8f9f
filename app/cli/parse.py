"""`winnow parse`: runs the parser on a file or stdin."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import IO

import click

from app import config
from app.cli.options import configuration, overrides, parser_of, reports_errors
from app.operate.parser_options import PARSER_FITS
from parsers.contract import Reject
from parsers.streams import cleanse, outcomes


@click.command(epilog="Example: winnow parse access.log")
@click.argument("source", type=click.File("rb"), default="-", metavar="[FILE|-]")
@configuration
@overrides
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line, in order.")
@reports_errors
def parse(source: IO[bytes], file: Path | None, assignments: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001  # click's flag
    """
    Cleanse a file or stdin, without Kafka or Spark. Needs no more of the configuration than its `parser` section.

    Cleansed lines go to stdout, and a JSON object for each reject goes to stderr. With --json, an object for each line
    goes to stdout. Exits with 1 if a line was rejected.
    """
    parser, rejected = parser_of(config.read_parser(file, assignments, rules=(PARSER_FITS,))), False
    if not as_json:
        return 1 if cleanse(parser, source, sys.stdout.buffer, partial(_print, err=True)) else 0
    for number, outcome in enumerate(outcomes(parser, source), 1):
        _print(number, outcome)
        rejected |= isinstance(outcome, Reject)
    return 1 if rejected else 0


def _print(number: int, outcome: bytes | Reject, *, err: bool = False) -> None:
    if isinstance(outcome, Reject):
        found = {"reason": outcome.reason, "detail": outcome.detail}
    else:
        found = {"output": outcome.decode(errors="backslashreplace")}
    click.echo(json.dumps({"line": number} | found, ensure_ascii=False), err=err)
