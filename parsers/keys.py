"""The fields of cleansed lines, any of which can be a line's key."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from parsers.contract import FIELD, HasFields, Parser
from parsers.errors import ParserOptionError, hint
from parsers.fields.located import MEMBERS


def pattern_of(parser: Parser, name: str) -> str:
    """Raises ParserOptionError if the parser has no such field, or its pattern is invalid."""
    try:
        patterns = dict(parser.output_fields) if isinstance(parser, HasFields) else {}
    except Exception as error:  # a user's code may raise anything
        raise ParserOptionError(f"the parser cannot say its fields: {type(error).__name__}: {error}") from error
    if name not in patterns:
        raise ParserOptionError(f"the parser's lines have no field {name!r}; {hint(name, patterns)}")
    try:
        cut(pa.array([], pa.binary()), patterns[name])
    except (ValueError, IndexError, TypeError) as error:
        raise ParserOptionError(f"the parser's pattern for {name!r} is invalid: {error}") from error
    return patterns[name]


def cut(values: pa.BinaryArray, pattern: str) -> pa.BinaryArray:
    """Return what a pattern finds in each line, without the escapes of JSON; null if it finds nothing."""
    found = pc.struct_field(pc.extract_regex(values, pattern), FIELD)
    return _unescaped(found) if pattern.startswith(MEMBERS) else found


def _unescaped(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the texts of values that are the inside of JSON strings."""
    escaped = pc.match_substring(values, "\\")
    if not pc.any(escaped).as_py():
        return values
    texts = [json.loads(f'"{each.decode()}"').encode() for each in values.filter(escaped).to_pylist()]
    return pc.replace_with_mask(values, escaped, pa.array(texts, pa.binary()))
