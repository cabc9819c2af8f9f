"""
Lines that are JSON objects (RFC 8259), one each.

A field is the text of a string, or a number, `true` or `false` as the line has it: no number is rounded. A member that
is missing or null is an empty field. The reasons of the format, beside those of `parsers.fields`:

- `not_json`: the line is not a JSON object in UTF-8, is nested deeper than 64 levels, or has half of a surrogate pair
  in a text that is read.
- `duplicate`: the object has a member twice that is read, or that is on the way to one.
- `not_a_value`: a member that is read is an object or an array.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parsers.compiled.buffers import addresses
from parsers.fields import FieldParser
from parsers.fields.formats import Cells, RefusedLine
from parsers.fields.layout import FieldOptions, Named, build, named

REASONS = ("not_json", "duplicate", "not_a_value")
MOST_DEPTH = 64
Path = tuple[str, ...]


class JsonLines(FieldParser):
    """
    Cleanses JSON objects.

    Args:
        fields: the names of the fields with their JSON Pointers (RFC 6901): `{url: /http/request/url}`; or a list of
            names, each of a member of that name. A pointer leads through objects only.
        options: the options that all formats share.

    Example:
        name: json
        fields: {host: /host, url: /http/request/url, status: /http/status}
        checks: {host: not-empty, status: integer}
        output.format: json
        output: [host, status, url]
    """

    def __init__(self, *, fields: Named, **options: Unpack[FieldOptions]) -> None:
        names, pointers = named(fields, "/{}")
        validated = build(names, REASONS, _problems(pointers), **options)
        super().__init__(*validated, Members([_path(pointer) for pointer in pointers.values()]))


class Members:
    """A JSON object whose members at these paths are the fields."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._texts, self._table = _table(paths)

    def split(self, line: bytes) -> Sequence[bytes]:
        value = _read(line)
        return [_text_at(value, path) for path in self._paths]

    def cells(self, lines: pa.BinaryArray) -> Cells:
        from parsers.compiled import kernels  # needs Numba, as every caller does

        scratch = pa.allocate_buffer(lines.nbytes + kernels.SLACK)
        spans, found = np.zeros((len(lines), len(self._paths), 2), np.int64), np.zeros(len(lines), np.uint8)
        kernels.members(addresses(lines), self._texts.ctypes.data, self._table, spans, found, scratch.address)
        return Cells(spans, found, [lines, scratch])


class _Object(list[tuple[str, object]]):
    """The members of an object, in order."""


def _read(line: bytes) -> _Object:
    try:
        text = line.decode()
        value = json.loads(
            text, object_pairs_hook=_Object, parse_int=str, parse_float=str, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise RefusedLine("not_json", f"the line is not JSON: {_told(error)}") from error
    if not isinstance(value, _Object):
        raise RefusedLine("not_json", "the line is JSON, but not an object")
    if _depth(value) > MOST_DEPTH:
        raise RefusedLine("not_json", f"the line is nested deeper than {MOST_DEPTH} levels")
    return value


def _told(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"it is nested deeper than {MOST_DEPTH} levels"
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    return f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else str(error)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, list)]:
        depth += 1
        level = [
            inner for each in level for inner in ([member for _, member in each] if isinstance(each, _Object) else each)
        ]
    return depth


def _text_at(value: object, path: Path) -> bytes:
    for name in path:
        if not isinstance(value, _Object):
            return b""
        found = [member for key, member in value if key == name]
        if len(found) > 1:
            raise RefusedLine("duplicate", f"the member {name!r} is there {len(found)} times")
        value = found[0] if found else None
    if isinstance(value, list):
        raise RefusedLine(
            "not_a_value", f"/{'/'.join(path)} is {'an object' if isinstance(value, _Object) else 'an array'}"
        )
    if value is None:
        return b""
    try:
        return (str(value).lower() if isinstance(value, bool) else str(value)).encode()
    except UnicodeEncodeError as error:
        raise RefusedLine("not_json", f"/{'/'.join(path)} has half of a surrogate pair") from error


def _path(pointer: str) -> Path:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def _problems(pointers: Mapping[str, object]) -> Iterator[str]:
    for name, pointer in pointers.items():
        if not isinstance(pointer, str) or not pointer.startswith("/"):
            yield f"fields: {name}: {pointer!r} is not a JSON Pointer: write for example /http/url"
            return
    paths = {name: _path(str(pointer)) for name, pointer in pointers.items()}
    for name, path in paths.items():
        for other, longer in paths.items():
            if name != other and longer[: len(path)] == path:
                yield f"fields: {name} is the same member as {other}, or an object around it: read one of them"


def _table(paths: Sequence[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the texts and the paths, as the kernel takes them."""
    rows: dict[Path, tuple[int, int, int, int]] = {(): (-1, 0, 0, -1)}
    texts = b"nulltruefalse"
    for field, path in enumerate(paths):
        for size in range(1, len(path) + 1):
            name = path[size - 1].encode()
            if path[:size] not in rows:
                parent = list(rows).index(path[: size - 1])
                rows[path[:size]] = (parent, len(texts), len(name), field if size == len(path) else -1)
                texts += name
    return np.frombuffer(texts, np.uint8).copy(), np.array(list(rows.values()), np.int64)
