"""
Lines of comma-separated values (RFC 4180): a field in double quotes may hold separators, line endings and `""`.

One record is one line, so a line ending in a field has to be inside the record. The reasons of the format, beside those
of `parsers.fields`: `bad_quotes`, `field_count`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Unpack

from parsers.fields import FieldParser
from parsers.fields.formats import ByLine, RefusedLine, counted
from parsers.fields.layout import FieldOptions, build

REASONS = ("bad_quotes", "field_count")
# Without the possessive loops, a field takes more than a hundred times its size in memory.
_QUOTED = re.compile(rb'"((?:[^"]++|"")*+)"')


class CsvLines(FieldParser):
    """
    Cleanses comma-separated values.

    Args:
        fields: the names of the fields, in order.
        separator: the character between two fields.
        options: the options that all formats share.

    Example:
        name: csv
        fields: [time, host, path]
        checks: {time: {time: rfc3339}}
        output: "{host}|{time}|{path}"
    """

    def __init__(self, *, fields: Sequence[str], separator: str = ",", **options: Unpack[FieldOptions]) -> None:
        validated = build(fields, REASONS, _problems(separator), **options)
        width = len(fields)
        super().__init__(*validated, ByLine(partial(_split, separator=separator.encode(), width=width), width))


def _problems(separator: object) -> Iterator[str]:
    if not (isinstance(separator, str) and len(separator) == 1 and separator.isascii() and separator not in '"\r\n'):
        yield f"separator must be one ASCII character, no quote or line ending, not {separator!r}"


def _split(line: bytes, *, separator: bytes, width: int) -> Sequence[bytes]:
    return counted(list(fields_of(line, separator)), width)


def fields_of(line: bytes, separator: bytes) -> Iterator[bytes]:
    """Yield the fields of a line, as many as there are. Raises RefusedLine."""
    at = -1
    while at < len(line):
        begin = at + 1
        if quoted := _QUOTED.match(line, begin):
            at = quoted.end()
            yield quoted[1].replace(b'""', b'"')
            if at < len(line) and not line.startswith(separator, at):
                raise RefusedLine("bad_quotes", f"byte {at} after a closing quote is no separator")
        elif line.startswith(b'"', begin):
            raise RefusedLine("bad_quotes", f"the quote at byte {begin} is not closed")
        else:
            at = line.find(separator, begin) % (len(line) + 1)
            yield line[begin:at]
