"""The fields of cleansed lines that can be located, any of which can be a line's key: patterns, and what they find."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from parsers.contract import FIELD, HasFields, Parser
from parsers.errors import ParserOptionError, hint
from parsers.fields.layout import Form, Layout, Piece

# The text between two fields separates them if it contains a character that no number or IPv4 address contains.
_DIVIDER = re.compile(rb"[^][]*[^][0-9.][^][]*")
_TEXT = r'(?:[^"\\]|\\.)*'
_MEMBERS = rf'\A\{{(?:"{_TEXT}":(?:"{_TEXT}"|[^",}}]*),)'
"""How the pattern of a member of a JSON object begins, and no other."""
_CHECKED = {Form.CLEAN: "[0-9]*", Form.ADDRESS: r"(?:\[[^\]]*\]|[0-9.]*)"}


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
    return _unescaped(found) if pattern.startswith(_MEMBERS) else found


def _unescaped(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return the texts of values that are the inside of JSON strings."""
    escaped = pc.match_substring(values, "\\")
    if not pc.any(escaped).as_py():
        return values
    texts = [json.loads(f'"{each.decode()}"').encode() for each in values.filter(escaped).to_pylist()]
    return pc.replace_with_mask(values, escaped, pa.array(texts, pa.binary()))


def output_fields(layout: Layout) -> dict[str, str]:
    """Return the pattern of each field, as `parsers.contract.HasFields` requires."""
    if layout.is_json:
        written = [piece for piece in layout.pieces if piece.form is not Form.LITERAL]
        return {layout.fields[piece.field]: _member(layout, place, piece) for place, piece in enumerate(written)}
    found: dict[str, str] = {}
    for number, column in enumerate(_columns(layout)):
        for at in _fields(column) if _is_divisible(column) else ():
            name = layout.fields[column[at].field]
            found.setdefault(name, _pattern(layout, number, column, at))
    return found


def _member(layout: Layout, place: int, wanted: Piece) -> str:
    """Return the pattern of a member of a JSON object, which holds only texts and numbers, by its place."""
    quote, value = ("", "[^,}]*") if wanted.form is Form.CLEAN else ('"', _TEXT)
    return rf'{_MEMBERS}{{{place}}}"{layout.fields[wanted.field]}":{quote}(?P<{FIELD}>{value}){quote}'


def _columns(layout: Layout) -> list[list[Piece]]:
    """Return the pieces of each output column; only literals contain the output separator."""
    columns: list[list[Piece]] = [[]]
    for piece in layout.pieces:
        if piece.form is not Form.LITERAL:
            columns[-1].append(piece)
            continue
        texts = piece.literal.split(bytes([layout.output_separator]))
        columns[-1].append(Piece(Form.LITERAL, texts[0]))
        columns += ([Piece(Form.LITERAL, text)] for text in texts[1:])
    return columns


def _fields(column: Sequence[Piece]) -> list[int]:
    return [at for at, piece in enumerate(column) if piece.form is not Form.LITERAL]


def _is_divisible(column: Sequence[Piece]) -> bool:
    """Tell whether a column has only one field, or checked fields with a separator that none of them contains."""
    fields = _fields(column)
    between = (column[field + 1 : following] for field, following in pairwise(fields))
    return len(fields) == 1 or (
        all(column[field].form in _CHECKED for field in fields)
        and all(_DIVIDER.fullmatch(b"".join(piece.literal for piece in pieces)) for pieces in between)
    )


def _pattern(layout: Layout, number: int, column: Sequence[Piece], wanted: int) -> str:
    end = re.escape(chr(layout.output_separator))
    parts = [
        re.escape(piece.literal.decode()) if piece.form is Form.LITERAL else _CHECKED.get(piece.form, f"[^{end}]*")
        for piece in column
    ]
    parts[wanted] = f"(?P<{FIELD}>{parts[wanted]})"
    return rf"\A(?:[^{end}]*{end}){{{number}}}{''.join(parts)}(?:{end}|\z)"
