"""`winnow parse`: runs the parser on a file or stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO

import click

from app import config
from app.cli.options import configuration, overrides, parser_of, read, reports_errors
from parsers.contract import Parser, Reject
from parsers.streams import cleanse, outcomes


@click.command()
@click.argument("source", type=click.File("rb"), default="-", metavar="[FILE|-]")
@configuration
@overrides
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line, in order.")
@reports_errors
def parse(source: IO[bytes], file: Path | None, assignments: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001  # click's flag
    """
    Cleanse a file or stdin, without Kafka or Spark.

    Cleansed lines go to stdout, and a JSON object for each reject goes to stderr. With --json, an object for each line
    goes to stdout. Exits with 1 if a line was rejected.
    """
    choice = read(file, assignments).config.parser if file or assignments else config.ParserChoice()
    if as_json:
        return _print_outcomes(parser_of(choice), source)
    return 1 if cleanse(parser_of(choice), source, sys.stdout.buffer, _print_reject) else 0


def _print_outcomes(parser: Parser, source: IO[bytes]) -> int:
    code = 0
    for number, outcome in enumerate(outcomes(parser, source), 1):
        if isinstance(outcome, Reject):
            code = 1
            row = {"line": number, "reason": outcome.reason, "detail": outcome.detail}
        else:
            row = {"line": number, "output": outcome.decode(errors="backslashreplace")}
        click.echo(json.dumps(row, ensure_ascii=False))
    return code


def _print_reject(number: int, reject: Reject) -> None:
    row = {"line": number, "reason": reject.reason, "detail": reject.detail}
    click.echo(json.dumps(row, ensure_ascii=False), err=True)
