"""
Proposes parsers for lines of which nothing is known: each with its options, the one that fits best first.

A draft knows where a format has its fields. The values that it finds there choose the checks, and the parser that is
built with all of that says which lines it takes. Of formats that take about the same share, the more specific wins.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from parsers import csv_lines, json_lines, logfmt, regex, registry
from parsers.contract import Parsed, Reject
from parsers.errors import ParserOptionError
from parsers.fields import marked
from parsers.fields.checks import Check, check_of
from parsers.fields.formats import RefusedLine
from parsers.fields.layout import RESERVED_REASONS
from parsers.fields.plain import passes

MOST_LINES = 1_000
ABOUT_THE_SAME = 0.05
"""How much less of the lines a more specific format may take: a more general one also takes some that are broken."""
MOST_COLUMNS = 12
"""How many fields the output has at most."""
MOST_FIELDS = 200
"""A text with more separators in each line has no columns."""
NEARLY_ALL = 0.95
"""The share of the lines in which a member or a key must be there to become a field."""
SEPARATORS = ("\t", "|", ";", ",", "\x01", " ")
BLANK = " "
BYTE_ORDER_MARK = "\ufeff"
TIMES = (
    "rfc3339",
    "%d/%b/%Y:%H:%M:%S %z",
    "%d/%b/%Y:%H:%M:%S.%f",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%d %H:%M:%S,%f",
    "%Y-%m-%d %H:%M:%S%z",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M:%S.%f",
    "%Y/%m/%d %H:%M:%S",
    "%a %b %d %H:%M:%S %Y",
    "%b %d %H:%M:%S",
    "%Y-%m-%d",
    "%H:%M:%S",
)
"""The formats of times that are recognised."""
UNCHECKED = frozenset({"bytes", "pid", "priority", "procid"})
"""Fields of log formats that hold a number in most lines, and nothing or `-` in others, which a sample may lack."""
LEFT_OUT = frozenset(
    {"request", "timers", "termination", "connections", "queues", "request_headers", "response_headers"}
)
"""Fields of log formats that few people need, or whose parts are fields, too."""
PORT = re.compile(r"(?:^|_|src|dst|dest|source|proxy)port$")
_RESERVED = RESERVED_REASONS.union(csv_lines.REASONS, json_lines.REASONS, logfmt.REASONS, marked.REASONS, regex.REASONS)

K = TypeVar("K", bound=Hashable)


class Proposal(NamedTuple):
    """
    A parser with its options, and what it does with the lines.

    Args:
        outputs: the cleansed form of each line that it takes, by the number of the line, from 0.
        has_header: whether the first line is none of the records: it names the fields.
    """

    parser: str
    options: Mapping[str, object]
    outputs: Mapping[int, bytes]
    rejects: Sequence[Reject]
    has_header: bool = False

    @property
    def records(self) -> int:
        return len(self.outputs) + len(self.rejects) - self.has_header

    @property
    def share(self) -> float:
        """The share of the records that the parser takes."""
        return len(self.outputs) / self.records

    def __str__(self) -> str:
        """Return the name, with the option that says which format it is."""
        own = (f"{key} {self.options[key]!r}" for key in ("log.format", "separator") if key in self.options)
        return " with ".join([self.parser, *own])


class _Draft(NamedTuple):
    """
    Where a format has its fields.

    Args:
        options: those of the format, without checks and output.
        width: how many fields a line has.
        columns: the fields to write; none for a parser that knows them itself.
        rank: the smaller, the less can have this format by chance.
    """

    rank: int
    parser: str
    options: Mapping[str, object]
    width: int = 0
    columns: Sequence[str] = ()
    has_header: bool = False


def propose(lines: Sequence[bytes]) -> list[Proposal]:
    """Return a proposal for each format that takes any of the lines, which have no line ending, the best first."""
    tried = [(found, draft) for draft in _drafts(lines) if (found := _tried(draft, lines)) and found.outputs]
    enough = max((found.share for found, _ in tried), default=0.0) - ABOUT_THE_SAME
    tried.sort(key=lambda each: _order(*each, is_specific=each[0].share >= enough))
    return [found for found, _ in tried]


def _order(found: Proposal, draft: _Draft, *, is_specific: bool) -> tuple[object, ...]:
    """Return what sorts a proposal: by how specific its format is if no other takes many more lines."""
    return (not is_specific, draft.rank if is_specific else 0, -round(found.share, 2), -draft.width, draft.parser)


def _drafts(lines: Sequence[bytes]) -> Iterator[_Draft]:
    yield _Draft(0, "idc-access-log", {})
    for name, pattern in regex.FORMATS.items():
        fields = re.findall(r"\?P<(\w+)>", pattern)
        yield _Draft(1, "regex", {"log.format": name}, len(fields), [each for each in fields if each not in LEFT_OUT])
    yield from _json(lines)
    yield from _logfmt(lines)
    for separator in SEPARATORS:
        yield from _separated(lines, separator)


# Names ----------------------------------------------------------------------------------------------------------------


def _json(lines: Sequence[bytes]) -> Iterator[_Draft]:
    objects = [value for value in map(_object, lines) if value is not None]
    paths = _usual((_leaves(each) for each in objects), len(objects))
    last = Counter(path[-1:] for path in paths)
    names = _names(path if last[path[-1:]] > 1 else path[-1:] for path in paths)
    if names:
        pointers = ["".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in path) for path in paths]
        fields = names if pointers == [f"/{each}" for each in names] else dict(zip(names, pointers, strict=True))
        yield _Draft(2, "json", {"fields": fields}, len(names), names)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line.decode(), parse_int=str)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _leaves(value: Mapping[str, Any], around: json_lines.Path = ()) -> Iterator[json_lines.Path]:
    """Yield the path of each member that is not an object or a list, through as many objects as a person would."""
    for name, member in value.items():
        path = (*around, name)
        if isinstance(member, dict) and len(path) < MOST_COLUMNS:
            yield from _leaves(member, path)
        elif not isinstance(member, dict | list):
            yield path


def _logfmt(lines: Sequence[bytes]) -> Iterator[_Draft]:
    found = [keys for keys in map(_keys, lines) if keys]
    keys = _usual(found, len(found))
    if len(keys) > 1:
        names = _names((key,) for key in keys)
        fields = names if names == keys else dict(zip(names, keys, strict=True))
        yield _Draft(3, "logfmt", {"fields": fields}, len(names), names)


def _keys(line: bytes) -> list[str]:
    """Return the keys that a line has once and with a value; others are words."""
    try:
        keys = Counter(key for key, _ in logfmt.pairs_of(line) if key + b"=" in line)
        return [key.decode() for key, count in keys.items() if count == 1]
    except (RefusedLine, UnicodeDecodeError):
        return []


def _usual(found: Iterable[Iterable[K]], total: int) -> list[K]:
    """Return what nearly all lines have, in the order in which it is found."""
    counts = Counter(each for one in found for each in one)
    return list(islice((each for each, count in counts.items() if count >= NEARLY_ALL * total), MOST_COLUMNS))


def _names(wanted: Iterable[Sequence[str]]) -> list[str]:
    """Return a field's name for each of these, which may be in several parts and any text."""
    names: list[str] = []
    for parts in wanted:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", "_".join(parts)).lower()
        name = re.sub(r"[^a-z0-9]+", "_", words).strip("_") or "field"
        name = f"_{name}" if name[0].isdigit() else f"{name}_" if name in _RESERVED else name
        same = sum(name == re.sub(r"__\d+$", "", each) for each in names)
        names.append(f"{name}__{same + 1}" if same else name)
    return names


# Columns --------------------------------------------------------------------------------------------------------------


def _separated(lines: Sequence[bytes], separator: str) -> Iterator[_Draft]:
    """Yield how the lines are separated by a text: in quotes as well, if there are any."""
    at = separator.encode()
    own = {} if separator == "," else {"separator": separator}
    quoted = re.compile(b'(?:^|%b)"' % re.escape(at))
    has_quotes = any(map(quoted.search, lines))
    if has_quotes or separator == ",":
        rank = (6 if separator == BLANK else 4) if has_quotes else 5
        yield from _columns(_Draft(rank, "csv", own), [_cells(line, at) for line in lines])
    plain = _Draft(7 if separator == BLANK else 5, "delimited", {"separator": separator})
    yield from _columns(plain, [line.split(at) for line in lines])


def _cells(line: bytes, separator: bytes) -> list[bytes]:
    try:
        return list(csv_lines.fields_of(line, separator))
    except RefusedLine:
        return []


def _columns(draft: _Draft, rows: Sequence[Sequence[bytes]]) -> Iterator[_Draft]:
    """Complete a draft by the names of as many fields as most lines have."""
    widths = Counter(width for width in map(len, rows) if 1 < width <= MOST_FIELDS)
    if not widths:
        return
    width = max(widths, key=lambda each: (widths[each], each))
    head, *others = rows
    names = _header(head, [row for row in others if len(row) == width]) if len(head) == width else []
    fields = names or [f"field_{number}" for number in range(1, width + 1)]
    options = {**draft.options, "fields": fields}
    yield draft._replace(options=options, width=width, columns=fields[:MOST_COLUMNS], has_header=bool(names))


def _header(head: Sequence[bytes], rows: Sequence[Sequence[bytes]]) -> list[str]:
    """Return the names in the first line; none if it is a record: only a name fails the check of its column."""
    titles = [cell.decode(errors="replace").strip(f"{BYTE_ORDER_MARK} \t") for cell in head]
    if not all(re.match(r"[A-Za-z_#]", each) for each in titles) or len({*titles}) < len(titles):
        return []
    names = _names((each,) for each in titles)
    for name, title, *values in islice(zip(names, head, *rows, strict=True), MOST_COLUMNS):
        check = _check(str(name), map(bytes, values))
        if check is not None and not passes(check_of(check), title):
            return names
    return []


# Checks ---------------------------------------------------------------------------------------------------------------


def _tried(draft: _Draft, lines: Sequence[bytes]) -> Proposal | None:
    """Return what the parser does with the lines; nothing if it takes none, or refuses a name that is no text."""
    options = draft.options
    try:
        if draft.columns:
            if not (rows := _rows(draft, lines[draft.has_header :])):
                return None
            options = {**options, **_chosen(draft.columns, rows)}
        parsed = _parsed(draft.parser, options, lines)
    except ParserOptionError:
        return None
    outputs = dict(zip(parsed.rows.tolist(), parsed.values.to_pylist(), strict=True))
    return Proposal(draft.parser, options, outputs, list(parsed.rejects()), draft.has_header)


def _rows(draft: _Draft, lines: Sequence[bytes]) -> list[dict[str, str]]:
    """Return the fields of each line, as the parser itself finds them."""
    columns = list(draft.columns)
    options = {**draft.options, "output.format": "json", "output": columns, "escape": columns}
    return [json.loads(value) for value in _parsed(draft.parser, options, lines).values.to_pylist()]


def _chosen(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> dict[str, object]:
    """Return the checks that all values pass, and the output; a text without a check may hold anything."""
    found = {name: _check(name, (row[name].encode() for row in rows)) for name in columns}
    checks = {name: check for name, check in found.items() if check is not None}
    escape = [name for name in columns if name not in checks]
    output = "|".join(f"{{{name}}}" for name in columns)
    chosen: dict[str, object] = {"checks": checks, "escape": escape, "output": output}
    return {key: value for key, value in chosen.items() if value}


def _parsed(parser: str, options: Mapping[str, object], lines: Sequence[bytes]) -> Parsed:
    """Parse without compiling first, which takes longer than so few lines."""
    return registry.load(parser, {**options, "engine": "plain"}).parse(pa.array(lines, pa.binary()))


def _check(name: str, values: Iterable[bytes]) -> str | dict[str, str] | None:
    """Return the check that all values of a field pass."""
    distinct = {value.strip(b" \t") for value in values}
    if not distinct or name in UNCHECKED:
        return None
    known = (each for each in _known(name) if all(passes(check_of(each), value) for value in distinct))
    return next(known, None)


def _known(name: str) -> Iterator[str | dict[str, str]]:
    """Yield the checks that can be recognised by the values, the strictest first; a port by its name as well."""
    if PORT.search(name):
        yield Check.PORT.value
    yield from (Check.IP.value, Check.DATETIME.value)
    yield from ({"time": form} for form in TIMES)
    yield from (Check.INTEGER.value, Check.NUMBER.value)
