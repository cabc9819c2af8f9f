"""`winnow parse`: runs the parser on a file or stdin."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO

import click
import pyarrow as pa
from rich.console import Console

from app import config
from app.cli.layout import View, fitted
from app.cli.options import configuration, overrides, parser_of, reports_errors
from app.cli.tables import print_json
from app.executor.parse import parse as parse_safely
from app.operate.outcomes import outcomes
from app.operate.plugin_rules import PARSER_FITS
from parsers.contract import Parse, Reject

BATCH_LINES = 10_000
SHOWN = 200
"""How many bytes of an example are shown."""


@click.command(epilog="Example: winnow parse access.log")
@click.argument("source", type=click.File("rb"), default="-", metavar="[FILE|-]")
@configuration
@overrides
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each line, in order.")
@reports_errors
def parse(source: IO[bytes], file: Path | None, assignments: tuple[str, ...], as_json: bool) -> int:  # noqa: FBT001  # click's flag
    """
    Cleanse a file or stdin, without Kafka or Spark. Needs no more of the configuration than its `parser` section.

    Cleansed lines go to stdout. Rejects go to stderr: a JSON object for each, or on a terminal a table that counts them
    by reason. With --json, an object for each line goes to stdout. Exits with 1 if a line was rejected.
    """
    parsing = partial(parse_safely, parser_of(config.read_parser(file, assignments, rules=(PARSER_FITS,))))
    console = Console(stderr=True, highlight=False)
    if as_json:
        rejected = _print_all(parsing, source)
    elif console.is_terminal and sys.stdout.isatty():
        rejected = _count_rejects(parsing, source, console)
    else:
        _, rejected = _cleanse(parsing, source, lambda at, reject, _: _print(at, reject, err=True))
    return 1 if rejected else 0


def _batches(source: IO[bytes]) -> Iterator[list[bytes]]:
    while lines := [line.removesuffix(b"\n") for line in islice(source, BATCH_LINES)]:
        yield lines


def _print_all(parsing: Parse, source: IO[bytes]) -> int:
    rejected = 0
    every = chain.from_iterable(outcomes(lines, parsing) for lines in _batches(source))
    for number, outcome in enumerate(every, 1):
        _print(number, outcome)
        rejected += isinstance(outcome, Reject)
    return rejected


def _cleanse(parsing: Parse, source: IO[bytes], reject: Callable[[int, Reject, bytes], object]) -> tuple[int, int]:
    """Print the cleansed lines, and pass each other one to `reject`; return how many lines there are, and rejects."""
    before = rejected = 0
    for lines in _batches(source):
        parsed = parsing(pa.array(lines, pa.binary()))
        sys.stdout.buffer.writelines(value + b"\n" for value in parsed.values.to_pylist())
        for each in parsed.rejects():
            reject(before + each.row + 1, each, lines[each.row])
        before += len(lines)
        rejected += len(parsed.reject_rows)
    sys.stdout.buffer.flush()
    return before, rejected


def _count_rejects(parsing: Parse, source: IO[bytes], console: Console) -> int:
    """Cleanse, and then show the rejects in a table, which thousands of them do not scroll away."""
    counts, first = Counter[str](), dict[str, tuple[int, str, str]]()

    def count(number: int, reject: Reject, line: bytes) -> None:
        counts[reject.reason] += 1
        if reject.reason not in first:
            text = line[:SHOWN].rstrip(b"\r").decode(errors="backslashreplace")
            first[reject.reason] = number, reject.detail, f"{text}…" if len(line) > SHOWN else text

    total, rejected = _cleanse(parsing, source, count)
    if rejected:
        columns = ("REASON", "#LINES", "#SHARE", "#FIRST", "?DETAIL", "?LINE")
        rows = [(reason, each, f"{each / total:.1%}", *first[reason]) for reason, each in counts.most_common()]
        view = View(columns, rows, None, footer=f"{rejected:,} of {total:,} lines are rejected")
        for line in fitted(view, console.width).lines:
            console.print(line, soft_wrap=True)
    return rejected


def _print(number: int, outcome: bytes | Reject, *, err: bool = False) -> None:
    if isinstance(outcome, Reject):
        found = {"reason": outcome.reason, "detail": outcome.detail}
    else:
        found = {"output": outcome.decode(errors="backslashreplace")}
    print_json({"line": number} | found, err=err)
