"""
Cleanses lines of fields in a fixed order, joined by a separator, each wrapped in a marker if there is one.

Rules, in the order in which they reject a line:

1. `empty`: a null, or nothing but a line end. One CR, LF or CRLF at the end is not part of the line.
2. `no_marker`: the line does not begin and end with the marker, the two not overlapping.
3. `field_count`: the text between the two, split at marker + separator + marker, does not have exactly the fields.
   The leftmost match splits first, as with `bytes.split`, so a field may hold a lone separator or a lone marker.
4. The name of a field that fails its check; the first one in the order of `checks`. A checked field is trimmed of
   blanks and tabs, unless it is escaped.
5. `illegal_character`: a field in the output holds what would break it and may not be escaped.

What would break the output is a control character (0x00-0x1F, 0x7F), a byte that is not part of valid UTF-8, and the
output separator, the one character that splits the output into columns. In an escaped field each such byte is written
as % and two upper-case hexadecimal digits; everything else, % too, stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from parsers.contract import Parsed
from parsers.engine import Engine, choose
from parsers.layout import Layout, build
from parsers.plain import Plain

if TYPE_CHECKING:
    from parsers.compiled import Compiled

_NO_CHECKS: Mapping[str, str] = MappingProxyType({})


class Delimited:
    """
    Cleanses delimited lines as its options say.

    Args:
        fields: the names of the fields, in order.
        output: the cleansed line, with a field written as `{name}`.
        separator: what stands between two fields (and between their markers).
        marker: what each field is wrapped in; may be empty.
        checks: field → `not-empty`, `datetime`, `ip` or `port`.
        escape: the fields that are percent-encoded rather than rejected.
        output_separator: the character in `output` that splits it into columns.
        engine: `compiled`, `plain`, or `auto` for compiled where Numba is there.

    Raises:
        ParserOptionError: the options are wrong; the message lists every problem.
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
        """Check the options and compile what they describe."""
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
        self._work = _worker(self._layout, self._engine)

    @property
    def engine(self) -> Engine:
        """Which implementation of the rules is at work."""
        return self._engine

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason a line can be rejected for, in the order in which they apply."""
        return self._layout.reasons

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """Cleanse one batch."""
        return self._work.parse(as_binary(lines))


def as_binary(lines: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.BinaryArray:
    """Take text and large arrays for what they hold; a binary array is not touched."""
    if isinstance(lines, pa.ChunkedArray):
        lines = lines.combine_chunks()
    return cast("pa.BinaryArray", lines if lines.type == pa.binary() else lines.cast(pa.binary()))


def _worker(layout: Layout, engine: Engine) -> Plain | Compiled:
    if engine is Engine.PLAIN:
        return Plain(layout)
    from parsers.compiled import Compiled  # needs Numba

    return Compiled(layout)
