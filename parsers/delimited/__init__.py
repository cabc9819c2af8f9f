"""
Cleanses lines with a fixed number of fields, joined by a separator. An optional marker encloses each field.

A line is rejected by the first of these rules that it breaks:

1. `empty`: the value is null, or only a line ending. One CR, LF or CRLF at the end is not part of the line.
2. `no_marker`: the line does not begin and end with the marker. The two markers must not overlap.
3. `field_count`: the text between those markers, split at marker + separator + marker, has too few or too many fields.
   It is split from the left, like `bytes.split`, so a field may contain a separator or a marker alone.
4. A field's name: that field fails its check. Checks apply in the order of the option `checks`. Blanks and tabs around
   a checked field are removed first, unless the field is escaped.
5. `illegal_character`: an unescaped field in the output contains a character that would break it.

Three kinds of characters would break the output: control characters (0x00-0x1F, 0x7F), bytes that are not part of valid
UTF-8, and the output separator, which is the character between two columns of the output. In an escaped field each such
byte becomes % and two upper-case hexadecimal digits. All other bytes stay unchanged, including %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from parsers.compiled.buffers import as_binary
from parsers.compiled.engine import Engine, choose
from parsers.contract import Parsed, Parser
from parsers.delimited.fields import output_fields
from parsers.delimited.layout import Layout, build
from parsers.delimited.plain import Plain

_NO_CHECKS: Mapping[str, str] = MappingProxyType({})


class Delimited:
    """
    Cleanses delimited lines.

    Args:
        fields: the names of the fields, in order.
        output: the cleansed line, with `{name}` for each field: `{host}|{port}`.
        separator: the text between two fields, and between their markers if there are any. Not empty.
        marker: the text on both sides of each field. May be empty.
        checks: the checks of fields: `not-empty`, `datetime`, `ip` or `port`.
        escape: the fields whose illegal characters are percent-encoded. In any other field they reject the line.
        output_separator: the ASCII character between two columns of `output`.
        engine: `compiled`, `plain`, or `auto` for compiled if Numba can be imported and plain if not.

    Example:
        name: delimited
        separator: ";"
        fields: [time, host, path]
        checks: {time: datetime, host: not-empty}
        escape: [path]
        output: "{host}|{time}|{path}"

    Raises:
        ParserOptionError: at least one option is wrong. The message lists every problem.
    """

    def __init__(
        self,
        *,
        fields: Sequence[str],
        output: str,
        separator: str | bytes = ",",
        marker: str | bytes = "",
        checks: Mapping[str, str] = _NO_CHECKS,
        escape: Sequence[str] = (),
        output_separator: str = "|",
        engine: str = "auto",
    ) -> None:
        self._layout = build(
            marker=marker,
            separator=separator,
            fields=fields,
            checks=checks,
            output=output,
            escape=escape,
            output_separator=output_separator,
        )
        self._engine = choose(engine)
        self._worker = _worker(self._layout, self._engine)

    @property
    def engine(self) -> Engine:
        """The engine in use: never `auto`."""
        return self._engine

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason code of this parser, in the order in which the rules apply."""
        return self._layout.reasons

    @property
    def output_fields(self) -> Mapping[str, str]:
        """
        The fields of the output that can be located; see `parsers.contract.HasFields`.

        Those are the fields with a column of their own, and the fields of a column in which all are checked as
        `datetime`, `ip` or `port` and separated by more than digits.
        """
        return output_fields(self._layout)

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """Cleanse one batch. Text, large and chunked arrays are converted."""
        return self._worker.parse(as_binary(lines))


def _worker(layout: Layout, engine: Engine) -> Parser:
    if engine is Engine.PLAIN:
        return Plain(layout)
    from parsers.delimited.compiled import Compiled  # needs Numba, which may be missing

    return Compiled(layout)
