"""
Lines that match a regular expression with named groups, which are the fields.

The reason of the format, beside those of `parsers.fields`: `no_match`. The syntax is RE2's, whose time grows only with
the length of a line. It applies to bytes: `.` is one byte. A group that takes no part in the match is empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Unpack, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parsers.compiled.buffers import addresses
from parsers.compiled.one_pass import automaton
from parsers.errors import ParserOptionError, hint
from parsers.fields import FieldParser
from parsers.fields.checks import refuse_cut_characters
from parsers.fields.formats import Cells, RefusedLine, spans_of
from parsers.fields.layout import FieldOptions, build

_QUOTED = r'(?:[^"\\]|\\.)*'
_WORD = r'(?:[^ "\\]|\\.)*'
_REQUEST = rf'"(?P<request>(?P<method>{_WORD})(?: (?P<url>{_WORD})(?: (?P<protocol>{_QUOTED}))?)?)"'
_COMMON = (
    r"^(?P<remote_addr>[^ ]+) [^ ]+ (?P<remote_user>[^ ]+) \[(?P<time_local>[^\]]+)\] "
    rf"{_REQUEST} (?P<status>[0-9][0-9][0-9]) (?P<bytes>[0-9]+|-)"
)
FORMATS = {
    "common": rf"{_COMMON}$",
    "combined": rf'{_COMMON} "(?P<referer>{_QUOTED})" "(?P<user_agent>{_QUOTED})"$',
    "syslog-rfc3164": (
        r"^(?:<(?P<priority>[0-9]{1,3})>)?(?P<time>[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}) "
        r"(?P<host>[^ ]+) (?P<tag>[^:\[ ]+)(?:\[(?P<pid>[^\]]*)\])?: ?(?P<message>(?s:.*))$"
    ),
    "syslog-rfc5424": (
        r"^<(?P<priority>[0-9]{1,3})>(?P<version>[1-9][0-9]?) (?P<time>[^ ]+) (?P<host>[^ ]+) (?P<app>[^ ]+) "
        rf'(?P<procid>[^ ]+) (?P<msgid>[^ ]+) (?P<data>-|(?:\[(?:[^"\]]|"{_QUOTED}")*\])+)'
        r"(?: (?P<message>(?s:.*)))?$"
    ),
    "haproxy-http": (
        r"(?P<client>[^ ]+):(?P<client_port>[0-9]+) \[(?P<time>[^\]]+)\] (?P<frontend>[^ ]+) "
        r"(?P<backend>[^ /]+)/(?P<server>[^ ]+) (?P<timers>[-+0-9/]+) (?P<status>-?[0-9]+) \+?(?P<bytes>[0-9]+) "
        r"[^ ]+ [^ ]+ (?P<termination>[^ ]{4}) (?P<connections>[+0-9/]+) (?P<queues>[0-9/]+)"
        rf"(?: \{{(?P<request_headers>[^}}]*)\}})?(?: \{{(?P<response_headers>[^}}]*)\}})? {_REQUEST}$"
    ),
}
"""The patterns that can be named: of nginx and Apache, of syslog, and of HAProxy's `option httplog`."""


class Regex(FieldParser):
    """
    Cleanses lines that match a regular expression.

    Args:
        pattern: the regular expression. It may match a part of the line: write `^` and `$`.
        log_format: instead of `pattern`, a format by name: `combined`, `common`, `haproxy-http`, `syslog-rfc3164` or
            `syslog-rfc5424`.
        options: the options that all formats share.

    Example:
        name: regex
        log.format: combined
        checks: {remote_addr: ip, status: integer}
        escape: [url]
        output: "{remote_addr}|{time_local}|{status}|{url}"
    """

    def __init__(self, *, pattern: str = "", log_format: str = "", **options: Unpack[FieldOptions]) -> None:
        wanted = _pattern(pattern, log_format)
        fields = _groups(wanted)
        layout, engine = build(fields, REASONS, **options)
        numbers = {*(piece.field for piece in layout.pieces), *(check.field for check in layout.checks)}
        used = [name for number, name in enumerate(fields) if number in numbers]
        super().__init__(layout, engine, Matched(wanted, fields, used))


REASONS = ("no_match",)


class Matched:
    """
    A line that matches a pattern.

    Args:
        fields: the names of the pattern's groups, in order.
        used: those that are found; the others stay empty.
    """

    def __init__(self, pattern: str, fields: Sequence[str], used: Sequence[str]) -> None:
        self._pattern = pattern
        self._fields = fields
        self._used = used
        self._places = np.array([fields.index(name) for name in used], np.int64)
        self._automaton = automaton(pattern, used)
        """What a kernel finds the groups with; without it, RE2 does."""
        self._smaller = _with_only(pattern, fields, used)

    def split(self, line: bytes) -> Sequence[bytes]:
        found = pc.extract_regex(pa.array([line], pa.binary()), self._pattern)[0].as_py()
        if found is None:
            raise RefusedLine("no_match", "the line does not match the pattern")
        return list(found.values())

    def cells(self, lines: pa.BinaryArray) -> Cells:
        if self._automaton is None:
            return self._by_re2(_without_line_ends(lines))
        from parsers.compiled import kernels  # needs Numba, as every caller does

        spans, found = np.zeros((len(lines), len(self._fields), 2), np.int64), np.zeros(len(lines), np.uint8)
        kernels.groups(addresses(lines), *self._automaton, self._places, spans, found)
        return Cells(spans, found, [lines])

    def _by_re2(self, lines: pa.BinaryArray) -> Cells:
        match = pc.extract_regex(lines, self._smaller)
        spans = np.zeros((len(lines), len(self._fields), 2), np.int64)
        for name in self._used:
            spans[:, self._fields.index(name)] = spans_of(match.field(name))
        is_found = match.is_valid().to_numpy(zero_copy_only=False)
        is_empty = pc.equal(pc.fill_null(pc.binary_length(lines), 0), 0).to_numpy(zero_copy_only=False)
        return Cells(spans, (is_found & ~is_empty).astype(np.uint8), [match])


def _pattern(pattern: object, log_format: object) -> str:
    if bool(pattern) == bool(log_format):
        raise ParserOptionError("write either pattern or log.format")
    if not log_format and isinstance(pattern, str):
        refuse_cut_characters(pattern)
        return pattern
    if log_format in FORMATS:
        return FORMATS[str(log_format)]
    wrong = f"pattern must be text, not {pattern!r}: quote it" if pattern else f"log.format: {log_format!r} is none"
    raise ParserOptionError(wrong if pattern else f"{wrong}; {hint(str(log_format), FORMATS)}")


def _groups(pattern: str) -> list[str]:
    """Return the names of a pattern's groups. Raises ParserOptionError if it is wrong, or a group has no name."""
    try:
        fields = cast("Any", pc.extract_regex(pa.array([], pa.binary()), pattern).type)
    except ValueError as error:
        msg = f"pattern: {error}: write a group as (?P<name>…), and one without a name as (?:…)"
        raise ParserOptionError(msg) from error
    return [field.name for field in fields]


def _with_only(pattern: str, groups: Sequence[str], used: Sequence[str]) -> str:
    """Return the pattern with the used ones of its groups only: RE2's time grows with their number."""
    others = "|".join(name for name in groups if name not in used)
    # A text like a group's can be part of a class or follow a backslash.
    is_text = len(re.findall(r"\(\?P?<", pattern)) != len(groups)
    return re.sub(rf"\(\?P?<(?:{others})>", "(?:", pattern) if others and not is_text else pattern


def _without_line_ends(lines: pa.BinaryArray) -> pa.BinaryArray:
    """Return the lines without one CR, LF or CRLF at the end. Few have one: Flume and Kafka producers cut it off."""
    ends = pc.match_substring_regex(lines, r"(?s)[\r\n]\z")
    if not pc.any(ends).as_py():
        return lines
    return cast("pa.BinaryArray", pc.replace_substring_regex(lines, r"(?s)(?:\r\n|\r|\n)\z", ""))
