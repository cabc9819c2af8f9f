"""The validated options of delimited lines for both engines, and the details of rejects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from string import Formatter

from parsers.errors import ParserOptionError, hint, listed

Refusal = tuple[str, str]
"""A reason code and a sentence for people."""

RESERVED_REASONS = frozenset(
    {"empty", "no_marker", "field_count", "illegal_character", "too_large", "envelope", "parser_error"}
)
_SHOWN = 60
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_IN_ADDRESSES = ".:[]"


NO_VALUE, EMPTY, NO_MARKER, FIELD_COUNT, CHECK, ILLEGAL = range(6)
"""The rules that reject a line, numbered as in `parsers.compiled.kernels`."""


class Check(StrEnum):
    """The checks of a field, in the order of their numbers in `parsers.compiled.kernels`."""

    NOT_EMPTY = "not-empty"
    DATETIME = "datetime"
    IP = "ip"
    PORT = "port"


_EXPECTED = {
    Check.DATETIME: "not a date and time (14 digits: YYYYMMDDhhmmss)",
    Check.IP: "not an IPv4 or IPv6 address",
    Check.PORT: "not a port (0 to 65535)",
}


class Form(IntEnum):
    """How a piece of the output is written, numbered as in `parsers.compiled.kernels`."""

    LITERAL = 0
    CLEAN = 1  # a field whose check excludes everything that could break the output
    ADDRESS = 2  # a clean field; an IPv6 address is written in brackets
    EXACT = 3  # any text; the line is rejected if it would break the output
    ESCAPED = 4  # any bytes; those that would break the output are percent-encoded


@dataclass(frozen=True, slots=True)
class FieldCheck:
    """The check of one field, by the field's index; `trimmed` fields lose blanks and tabs around them first."""

    field: int
    check: Check
    trimmed: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the output: `literal` if its form is `LITERAL`, otherwise the field with the index `field`."""

    form: Form
    literal: bytes = b""
    field: int = -1


@dataclass(frozen=True, slots=True)
class Layout:
    """
    A delimited line and its output.

    Args:
        marker: the bytes at the beginning and at the end of the line. May be empty.
        separator: the bytes between two fields, markers included: marker + separator + marker.
        fields: the names of the fields, in order.
        checks: the checks, in the order in which they apply.
        pieces: the parts of the output, in order.
        output_separator: the byte between two columns of the output.
    """

    marker: bytes
    separator: bytes
    fields: tuple[str, ...]
    checks: tuple[FieldCheck, ...]
    pieces: tuple[Piece, ...]
    output_separator: int

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason code that a line can be rejected with, in the order in which the rules apply."""
        checked = (self.fields[check.field] for check in self.checks)
        return ("empty", "no_marker", "field_count", *checked, "illegal_character")

    def refusal(self, rule: int, number: int = 0, value: bytes = b"") -> Refusal:
        """
        Return why a line is rejected.

        Args:
            rule: one of the rules above.
            number: how many fields the line has, or the index of the failed check, or of the illegal field.
            value: the text of that field.
        """
        if rule == CHECK:
            check = self.checks[number]
            name = self.fields[check.field]
            is_empty = check.check is Check.NOT_EMPTY
            return name, f"{name} is empty" if is_empty else f"{name} is {shown(value)}, {_EXPECTED[check.check]}"
        if rule == NO_MARKER:
            return "no_marker", f"the line does not begin and end with {shown(self.marker)}"
        if rule == FIELD_COUNT:
            return "field_count", f"the line has {number} field{'s' * (number != 1)}, not {len(self.fields)}"
        if rule == ILLEGAL:
            name = self.fields[number]
            detail = f"{name} is {shown(value)}, which contains a character that would break the output"
            return "illegal_character", detail
        return "empty", "the record has no value" if rule == NO_VALUE else "the line is empty"


def shown(value: bytes) -> str:
    """Return the value in quotes, at most 62 printable characters of it: safe for logs, terminals and headers."""
    quoted = repr(value[:_SHOWN])[1:]
    if len(value) <= _SHOWN and len(quoted) <= _SHOWN + 2:
        return quoted
    return f"{quoted[:_SHOWN].removesuffix(quoted[0])}…{quoted[0]}"


def build(
    *,
    marker: str | bytes,
    separator: str | bytes,
    fields: Sequence[str],
    checks: Mapping[str, str],
    output: str,
    escape: Sequence[str],
    output_separator: str,
) -> Layout:
    """Check the options of `Delimited`. Raises ParserOptionError with every problem."""
    problems = [*_text_problems(marker, separator, output, output_separator), *_field_problems(fields)]
    if not problems:
        problems += [
            *_check_problems(fields, checks, escape),
            *_output_problems(fields, checks, output, output_separator),
        ]
    if problems:
        raise ParserOptionError(listed(problems))
    wrap = _bytes(marker)
    return Layout(
        marker=wrap,
        separator=wrap + _bytes(separator) + wrap,
        fields=tuple(fields),
        checks=tuple(FieldCheck(fields.index(name), Check(kind), name not in escape) for name, kind in checks.items()),
        pieces=tuple(_pieces(fields, checks, output, escape)),
        output_separator=ord(output_separator),
    )


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _text_problems(marker: object, separator: object, output: object, output_separator: object) -> Iterator[str]:
    for name, value in (("marker", marker), ("separator", separator)):
        if not isinstance(value, str | bytes):
            yield f"{name} must be text, not {value!r}: quote it"
        elif {*b"\r\n"} & {*_bytes(value)}:
            yield f"{name} must not contain a line ending"
    if separator in ("", b""):
        yield "separator must not be empty: set it to the text between two fields, for example separator: ','"
    if not isinstance(output, str):
        yield f"output must be text such as '{{a}}|{{b}}', not {output!r}"
    if not (isinstance(output_separator, str) and len(output_separator) == 1 and output_separator.isascii()):
        yield f"output.separator must be one ASCII character, not {output_separator!r}"
    elif output_separator.isalnum() or output_separator in "%\r\n":
        yield f"output.separator must not be a letter, digit, % or line ending: {output_separator!r} cannot be escaped"


def _field_problems(fields: object) -> Iterator[str]:
    if isinstance(fields, str) or not isinstance(fields, Sequence) or not fields:
        yield f"fields must be a list of names, not {fields!r}: write fields: [a, b, c]"
        return
    for name in fields:
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            yield f"fields: {name!r} is not a name: use lower-case letters, digits and _"
    twice = sorted({str(name) for name in fields if fields.count(name) > 1})
    if twice:
        yield f"fields: {', '.join(twice)} named more than once"


def _check_problems(fields: Sequence[str], checks: object, escape: object) -> Iterator[str]:
    if not isinstance(checks, Mapping):
        yield f"checks must map a field to a check, not {checks!r}: write checks: {{{fields[0]}: not-empty}}"
        checks = {}
    if isinstance(escape, str) or not isinstance(escape, Sequence):
        yield f"escape must be a list of fields, not {escape!r}: write escape: [{fields[-1]}]"
        escape = ()
    for name, check in checks.items():
        yield from _known("checks", name, fields)
        if check not in (*Check,):
            yield f"checks: {name}: no check {check!r}; {hint(str(check), Check)}"
        elif check != Check.NOT_EMPTY and name in escape:
            yield f"escape: {name} is checked as {check}, so it never needs escaping: remove it from escape"
        if name in RESERVED_REASONS:
            yield f"checks: {name} is a reserved reason code: rename the field"
    for name in escape:
        yield from _known("escape", name, fields)


def _output_problems(
    fields: Sequence[str], checks: Mapping[str, str], output: str, output_separator: str
) -> Iterator[str]:
    try:
        parts = list(Formatter().parse(output))
    except ValueError as error:
        yield f"output: {error} in {output!r}: write a field as {{name}} and a brace as {{{{ or }}}}"
        return
    names = [name for _, name, _, _ in parts if name is not None]
    if not names:
        yield f"output {output!r} names no field: write for example '{{{fields[0]}}}'"
    for name in names:
        yield from _known("output", name, fields)
    if any(spec or conversion for _, _, spec, conversion in parts):
        yield f"output: a field is written as {{name}}, without '!' or ':' inside the braces: {output!r}"
    literals = "".join(literal for literal, *_ in parts)
    if any(char != output_separator and (char < " " or char == "\x7f") for char in literals):
        yield f"output must not contain control characters: {output!r}"
    if len(names) > 1 and output_separator not in literals:
        yield f"output does not contain {output_separator!r}: set output.separator to the separator that it uses"
    if output_separator in _IN_ADDRESSES and isinstance(checks, Mapping):
        yield from (
            f"output.separator {output_separator!r} also occurs in IP addresses such as {name}: choose another"
            for name in names
            if checks.get(name) == Check.IP
        )


def _known(option: str, name: object, fields: Sequence[str]) -> Iterator[str]:
    if name not in fields:
        yield f"{option}: no field {name!r}; {hint(str(name), fields)}"


def _pieces(fields: Sequence[str], checks: Mapping[str, str], output: str, escape: Sequence[str]) -> Iterator[Piece]:
    for literal, name, _, _ in Formatter().parse(output):
        if literal:
            yield Piece(Form.LITERAL, literal.encode())
        if name is not None:
            yield Piece(_form(name, checks, escape), field=fields.index(name))


def _form(name: str, checks: Mapping[str, str], escape: Sequence[str]) -> Form:
    if name in escape:
        return Form.ESCAPED
    check = checks.get(name, Check.NOT_EMPTY)
    if check == Check.IP:
        return Form.ADDRESS
    return Form.EXACT if check == Check.NOT_EMPTY else Form.CLEAN
