"""The patterns of the fields in an output that can be located."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from parsers.contract import FIELD
from parsers.fields.layout import Form, Layout, Piece

# The text between two fields separates them if it contains a character that no number or IPv4 address contains.
_DIVIDER = re.compile(rb"[^][]*[^][0-9.][^][]*")
_TEXT = r'(?:[^"\\]|\\.)*'
MEMBERS = rf'\A\{{(?:"{_TEXT}":(?:"{_TEXT}"|[^",}}]*),)'
"""How the pattern of a member of a JSON object begins, and no other."""
_CHECKED = {Form.CLEAN: "[0-9]*", Form.ADDRESS: r"(?:\[[^\]]*\]|[0-9.]*)"}


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
    return rf'{MEMBERS}{{{place}}}"{layout.fields[wanted.field]}":{quote}(?P<{FIELD}>{value}){quote}'


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
