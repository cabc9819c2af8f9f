"""
Lets libFuzzer search for values that take new paths through the plain parsers, and gives each to both engines.

The kernels cannot be instrumented, so the plain parsers guide the search: they make the same decisions. Every value
that takes a new path stays in the corpus.

Usage: python -m tests.fuzz.guided TARGET [libFuzzer's options] [CORPUS…]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import atheris

with atheris.instrument_imports(include=["parsers", "app.config", "app.offsets"], enable_loader_override=False):
    from app.config import reading
    from app.offsets import metadata
    from parsers import csv_lines, json_lines, logfmt
    from parsers.fields import plain as lines
    from parsers.flume import plain as events

from tests.fuzz.configuration import check_configuration
from tests.fuzz.engines import access_log, check_headers
from tests.fuzz.formats import cases
from tests.fuzz.offsets import check_metadata

GUIDES = (reading, metadata, lines, events, csv_lines, json_lines, logfmt)


def access_log_of(envelope: str) -> Callable[[bytes], None]:
    """Return a check of a value in this format's envelope."""
    parser = access_log(envelope)

    def check(value: bytes) -> None:
        parser.outcomes([value])

    return check


def format_of(name: str) -> Callable[[bytes], None]:
    """Return a check of a value in this format."""
    pair = cases()[name].pair

    def check(value: bytes) -> None:
        pair.outcomes([value])

    return check


def flume() -> Callable[[bytes], None]:
    """Return a check of a value as one of Flume's events."""
    strict = access_log_of("flume-avro")

    def check(value: bytes) -> None:
        strict(value)
        check_headers([value])

    return check


TARGETS: dict[str, Callable[[], Callable[[bytes], object]]] = {
    "lines": lambda: access_log_of("raw"),
    "events": flume,
    "csv": lambda: format_of("csv"),
    "json": lambda: format_of("json"),
    "logfmt": lambda: format_of("logfmt"),
    "configuration": lambda: check_configuration,
    "offsets": lambda: lambda value: check_metadata(value.decode("utf-8", "replace")),
}


def main(arguments: Sequence[str]) -> None:
    """Run libFuzzer on a target. It ends the process."""
    program, target, *options = arguments
    atheris.Setup([program, *options], TARGETS[target]())
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
