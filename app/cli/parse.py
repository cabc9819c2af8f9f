"""`winnow parse`: the parser on a file or on stdin."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO

import click

from app import config
from app.cli.options import configuration, overrides, parser_of, read, reports_errors
from parsers.contract import Reject
from parsers.streams import cleanse


@click.command()
@click.argument("source", type=click.File("rb"), default="-", metavar="[FILE|-]")
@configuration
@overrides
@reports_errors
def parse(source: IO[bytes], file: Path | None, assignments: tuple[str, ...]) -> int:
    """
    Cleanse the lines of a file or of stdin: no Kafka, no Spark.

    Cleansed lines go to stdout, one JSON object for each reject to stderr. Ends with 1 if a line was rejected.
    """
    choice = read(file, assignments).config.parser if file or assignments else config.ParserChoice()
    return 1 if cleanse(parser_of(choice), source, sys.stdout.buffer, _print_reject) else 0


def _print_reject(number: int, reject: Reject) -> None:
    row = {"line": number, "reason": reject.reason, "detail": reject.detail}
    click.echo(json.dumps(row, ensure_ascii=False), err=True)
