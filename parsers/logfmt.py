"""
Lines of `key=value` pairs, as Go's and Heroku's loggers write them. A value in double quotes may hold blanks.

In quotes, a backslash begins an escape as Go writes it: a quote, a backslash, one of `abfnrtv`, `x` with two
hexadecimal digits for a byte, `u` with four or `U` with eight for a character. A key without a value, and one that is
missing, is an empty field. The reasons of the format, beside those of `parsers.fields`: `not_logfmt`, also for any
other escape, and `duplicate` for a key that is read and there twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Unpack

from parsers.fields import FieldParser
from parsers.fields.formats import ByLine, RefusedLine
from parsers.fields.layout import FieldOptions, Named, build, named

REASONS = ("not_logfmt", "duplicate")
# What follows a backslash. No code is that of half a surrogate pair.
_CODE = (
    rb'["\\abfnrtv]|x[0-9A-Fa-f]{2}|u(?![Dd][89A-Fa-f])[0-9A-Fa-f]{4}'
    rb"|U(?!0000[Dd][89A-Fa-f])00(?:0[0-9A-Fa-f]|10)[0-9A-Fa-f]{4}"
)
# Without the possessive loops, a value takes more than a hundred times its size in memory.
_PAIR = re.compile(rb'[ \t]*([^ \t="]+)(?:=(?:"((?:[^"\\]++|\\(?:%b))*+)"|([^ \t"]*)))?(?:[ \t]+|\Z)' % _CODE)
_ESCAPE = re.compile(rb"\\(%b)" % _CODE)
_CONTROLS = bytes.maketrans(b"abfnrtv", b"\a\b\f\n\r\t\v")


class Logfmt(FieldParser):
    """
    Cleanses `key=value` pairs.

    Args:
        fields: the names of the fields with their keys: `{url: http.url}`; or a list of names that are the keys.
        options: the options that all formats share.

    Example:
        name: logfmt
        fields: {level: level, url: http.url}
        checks: {level: {one-of: [info, error]}}
        output: "{level}|{url}"
    """

    def __init__(self, *, fields: Named, **options: Unpack[FieldOptions]) -> None:
        names, keys = named(fields, "{}")
        validated = build(names, REASONS, _problems(keys.values()), **options)
        super().__init__(*validated, ByLine(partial(_values, [key.encode() for key in keys.values()]), len(keys)))


def _problems(keys: Iterable[object]) -> Iterator[str]:
    for key in keys:
        if not (isinstance(key, str) and re.fullmatch(r'[^ \t="]+', key)):
            yield f"fields: {key!r} is not a key"


def _values(keys: Sequence[bytes], line: bytes) -> Sequence[bytes]:
    values: dict[bytes, bytes] = {}
    for key, value in pairs_of(line):
        if key in values and key in keys:
            raise RefusedLine("duplicate", f"the key {key.decode(errors='backslashreplace')} is there twice")
        values[key] = value
    return [values.get(key, b"") for key in keys]


def pairs_of(line: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each key with its value. Raises RefusedLine."""
    at = 0
    while at < len(line):
        pair = _PAIR.match(line, at)
        if pair is None:
            raise RefusedLine("not_logfmt", f"byte {at} begins no key=value pair")
        at = pair.end()
        quoted, bare = pair[2], pair[3]
        yield pair[1], bare or b"" if quoted is None else _ESCAPE.sub(_meaning, quoted)


def _meaning(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if len(code) == 1:
        return code.translate(_CONTROLS)
    return bytes.fromhex(code[1:].decode()) if code.startswith(b"x") else chr(int(code[1:], 16)).encode()
