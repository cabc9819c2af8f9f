"""
Lines with a fixed number of fields, joined by a separator. An optional marker encloses each field.

The reasons of the format, beside those of `parsers.fields`:

- `no_marker`: the line does not begin and end with the marker. The two markers must not overlap.
- `field_count`: the text between those markers, split at marker + separator + marker, has too few or too many fields.
  It is split from the left, like `bytes.split`, so a field may contain a separator or a marker alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Unpack

from parsers.fields import FieldParser
from parsers.fields.layout import FieldOptions, build
from parsers.fields.marked import REASONS, Marked


class Delimited(FieldParser):
    """
    Cleanses delimited lines.

    Args:
        fields: the names of the fields, in order.
        separator: the text between two fields, and between their markers if there are any. Not empty.
        marker: the text on both sides of each field. May be empty.
        options: the options that all formats share.

    Example:
        name: delimited
        separator: ";"
        fields: [time, host, path]
        checks: {time: datetime, host: not-empty}
        escape: [path]
        output: "{host}|{time}|{path}"
    """

    def __init__(
        self,
        *,
        fields: Sequence[str],
        separator: str | bytes = ",",
        marker: str | bytes = "",
        **options: Unpack[FieldOptions],
    ) -> None:
        validated = build(fields, REASONS, _problems(marker, separator), **options)
        wrap = _bytes(marker)
        super().__init__(*validated, Marked(wrap, wrap + _bytes(separator) + wrap, len(fields)))


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _problems(marker: object, separator: object) -> Iterator[str]:
    for name, value in (("marker", marker), ("separator", separator)):
        if not isinstance(value, str | bytes):
            yield f"{name} must be text, not {value!r}: quote it"
        elif {*b"\r\n"} & {*_bytes(value)}:
            yield f"{name} must not contain a line ending"
    if separator in ("", b""):
        yield "separator must not be empty: set it to the text between two fields, for example separator: ','"
