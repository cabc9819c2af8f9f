"""The validated options that all formats share: fields, checks and output; and the details of rejects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from string import Formatter
from types import MappingProxyType
from typing import Required, TypedDict

from parsers.compiled.engine import Engine, choose
from parsers.errors import ParserOptionError, hint, listed
from parsers.fields.checks import EXPECTED, Check, Matches, Network, OneOf, Test, Time, check_of
from parsers.fields.formats import Refusal

RESERVED_REASONS = frozenset({"empty", "illegal_character", "too_large", "refused", "envelope", "parser_error"})
_SHOWN = 60
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_TEXT, _JSON = "text", "json"


class Form(IntEnum):
    """How a piece of the output is written, numbered as in `parsers.compiled.kernels`."""

    LITERAL = 0
    CLEAN = 1  # a field whose check excludes everything that could break the output
    ADDRESS = 2  # a clean field; an IPv6 address is written in brackets
    EXACT = 3  # any text; the line is rejected if it would break the output
    ESCAPED = 4  # any bytes; those that would break the output are percent-encoded
    JSON = 5  # any text, as the inside of a JSON string
    JSON_ESCAPED = 6  # any bytes, as the inside of a JSON string; those that are not UTF-8 are percent-encoded


@dataclass(frozen=True, slots=True)
class FieldCheck:
    """The check of one field, by the field's index; `trimmed` fields lose blanks and tabs around them first."""

    field: int
    check: Check | Test
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
    The fields of a line and its output.

    Args:
        fields: the names of the fields, in order.
        checks: the checks, in the order in which they apply.
        pieces: the parts of the output, in order.
        output_separator: the byte between two columns of the output.
        is_json: whether the output is JSON.
        reasons: every reason code, in the order in which the rules apply.
    """

    fields: tuple[str, ...]
    checks: tuple[FieldCheck, ...]
    pieces: tuple[Piece, ...]
    output_separator: int
    is_json: bool
    reasons: tuple[str, ...]

    def failed(self, number: int, value: bytes) -> Refusal:
        """Return why a line is rejected whose value fails the check of this index."""
        field, check = self.checks[number].field, self.checks[number].check
        name = self.fields[field]
        if check is Check.NOT_EMPTY:
            return name, f"{name} is empty"
        return name, f"{name} is {shown(value)}, {EXPECTED[check] if isinstance(check, Check) else check.expected}"

    def illegal(self, field: int, value: bytes) -> Refusal:
        """Return why a line is rejected whose field would break the output."""
        what = "which is not UTF-8" if self.is_json else "which contains a character that would break the output"
        return "illegal_character", f"{self.fields[field]} is {shown(value)}, {what}"


def shown(value: bytes) -> str:
    """Return the value in quotes, at most 62 printable characters of it: safe for logs, terminals and headers."""
    quoted = repr(value[:_SHOWN])[1:]
    if len(value) <= _SHOWN and len(quoted) <= _SHOWN + 2:
        return quoted
    return f"{quoted[:_SHOWN].removesuffix(quoted[0])}…{quoted[0]}"


class FieldOptions(TypedDict, total=False):
    """The options that all formats share; `parsers.fields.FieldParser` tells what they mean."""

    output: Required[str | Sequence[str]]
    output_format: str
    output_separator: str
    checks: Mapping[str, object]
    escape: Sequence[str]
    engine: str


Named = Mapping[str, str] | Sequence[str]
"""The names of fields with where a line has them, or the names alone."""


def named(fields: Named, usual: str) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return the names, and where a line has each field: as a mapping says, or `usual` with the name in it."""
    if isinstance(fields, Mapping):
        return list(fields), fields
    return fields, {name: usual.format(name) for name in fields} if isinstance(fields, list | tuple) else {}


def build(
    fields: Sequence[str],
    reasons: Sequence[str],
    problems: Iterable[str] = (),
    *,
    output: str | Sequence[str],
    output_format: str = _TEXT,
    output_separator: str = "|",
    checks: Mapping[str, object] = MappingProxyType({}),
    escape: Sequence[str] = (),
    engine: str = "auto",
) -> tuple[Layout, Engine]:
    """
    Check the options that all formats share; return what they mean, and the engine.

    Args:
        reasons: the reason codes of the format, which no field may be called.
        problems: what is wrong with the options of the format.

    Raises:
        ParserOptionError: at least one option is wrong. The message lists every problem.
    """
    is_json = output_format == _JSON
    found = [*problems, *_output_problems(output, output_format, output_separator), *_field_problems(fields)]
    given: dict[str, Check | Test] = {}
    if not found:
        found += _check_problems(fields, checks, escape, {*RESERVED_REASONS, *reasons}, given)
        columns = _column_problems(fields, given, str(output), output_separator)
        found += _member_problems(fields, output) if is_json else columns
    if found:
        raise ParserOptionError(listed(found))
    pieces = _members(fields, given, output, escape) if is_json else _columns(fields, given, str(output), escape)
    layout = Layout(
        fields=tuple(fields),
        checks=tuple(FieldCheck(fields.index(name), check, name not in escape) for name, check in given.items()),
        pieces=tuple(pieces),
        output_separator=ord(output_separator),
        is_json=is_json,
        reasons=("empty", *reasons, *given, "illegal_character"),
    )
    return layout, choose(engine)


def _output_problems(output: object, output_format: object, output_separator: object) -> Iterator[str]:
    if output_format not in (_TEXT, _JSON):
        yield f"output.format must be text or json, not {output_format!r}"
    elif output_format == _JSON and (isinstance(output, str) or not isinstance(output, Sequence)):
        yield f"output must be a list of fields if output.format is json, not {output!r}: write output: [a, b]"
    elif output_format == _TEXT and not isinstance(output, str):
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
    yield from _named_twice("fields", fields)


def _named_twice(option: str, names: Sequence[object]) -> Iterator[str]:
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        yield f"{option}: {', '.join(twice)} named more than once"


def _check_problems(
    fields: Sequence[str], checks: object, escape: object, reserved: set[str], given: dict[str, Check | Test]
) -> Iterator[str]:
    """Yield what is wrong with the checks; add those that are right to `given`."""
    if not isinstance(checks, Mapping):
        yield f"checks must map a field to a check, not {checks!r}: write checks: {{{fields[0]}: not-empty}}"
        checks = {}
    if isinstance(escape, str) or not isinstance(escape, Sequence):
        yield f"escape must be a list of fields, not {escape!r}: write escape: [{fields[-1]}]"
        escape = ()
    for name, option in checks.items():
        yield from _known("checks", name, fields)
        try:
            given[name] = check_of(option)
        except ParserOptionError as error:
            yield f"checks: {name}: {error}"
        else:
            if name in escape and not (given[name] is Check.NOT_EMPTY or isinstance(given[name], Matches | OneOf)):
                yield f"escape: {name} is checked as {option}, so it never needs escaping: remove it from escape"
        if name in reserved:
            yield f"checks: {name} is a reserved reason code: rename the field"
    for name in escape:
        yield from _known("escape", name, fields)


def _column_problems(
    fields: Sequence[str], checks: Mapping[str, Check | Test], output: str, output_separator: str
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
    for name in names:
        values, characters = _values(checks.get(name))
        if output_separator in characters:
            yield f"output.separator {output_separator!r} also occurs in {values} such as {name}: choose another"


def _values(check: Check | Test | None) -> tuple[str, str]:
    """Return what values that pass a check are, and the characters in them that cannot separate columns."""
    match check:
        case Check.IP | Network():
            return "IP addresses", ".:[]"
        case Check.INTEGER:
            return "numbers", "-"
        case Check.NUMBER:
            return "numbers", "-+."
        case Time():
            return "times", check.characters
    return "values", ""


def _member_problems(fields: Sequence[str], output: Sequence[str]) -> Iterator[str]:
    if not output:
        yield f"output names no field: write for example output: [{fields[0]}]"
    for name in output:
        yield from _known("output", name, fields)
    yield from _named_twice("output", output)


def _known(option: str, name: object, fields: Sequence[str]) -> Iterator[str]:
    if name not in fields:
        yield f"{option}: no field {name!r}; {hint(str(name), fields)}"


def _columns(
    fields: Sequence[str], checks: Mapping[str, Check | Test], output: str, escape: Sequence[str]
) -> Iterator[Piece]:
    for literal, name, _, _ in Formatter().parse(output):
        if literal:
            yield Piece(Form.LITERAL, literal.encode())
        if name is not None:
            form = Form.ESCAPED if name in escape else _form(checks.get(name, Check.NOT_EMPTY))
            yield Piece(form, field=fields.index(name))


def _members(
    fields: Sequence[str], checks: Mapping[str, Check | Test], output: Iterable[str], escape: Sequence[str]
) -> Iterator[Piece]:
    before = "{"
    for name in output:
        is_number = checks.get(name) in (Check.INTEGER, Check.NUMBER) and name not in escape
        quote = "" if is_number else '"'
        form = Form.JSON_ESCAPED if name in escape else Form.JSON
        yield Piece(Form.LITERAL, f"{before}{json.dumps(name)}:{quote}".encode())
        yield Piece(Form.CLEAN if is_number else form, field=fields.index(name))
        before = f"{quote},"
    yield Piece(Form.LITERAL, f"{before.removesuffix(',')}}}".encode())


def _form(check: Check | Test) -> Form:
    """Return how a column with a checked field is written, unless the field is escaped."""
    if check is Check.IP or isinstance(check, Network):
        return Form.ADDRESS
    return Form.CLEAN if check in (Check.DATETIME, Check.PORT) else Form.EXACT
