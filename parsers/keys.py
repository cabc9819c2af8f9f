"""The fields of cleansed lines, any of which can be a line's key."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from parsers.contract import FIELD, HasFields, Parser
from parsers.errors import ParserOptionError, hint


def pattern_of(parser: Parser, name: str) -> str:
    """Raises ParserOptionError if the parser has no such field, or its pattern is invalid."""
    patterns = parser.output_fields if isinstance(parser, HasFields) else {}
    if name not in patterns:
        raise ParserOptionError(f"the parser's lines have no field {name!r}; {hint(name, patterns)}")
    try:
        cut(pa.array([], pa.binary()), patterns[name])
    except (ValueError, IndexError, TypeError) as error:
        raise ParserOptionError(f"the parser's pattern for {name!r} is invalid: {error}") from error
    return patterns[name]


def cut(values: pa.BinaryArray, pattern: str) -> pa.BinaryArray:
    """Return what a pattern finds in each line; null if it finds nothing."""
    return pc.struct_field(pc.extract_regex(values, pattern), FIELD)
