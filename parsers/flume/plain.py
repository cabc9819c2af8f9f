"""Opens Flume events with fastavro: the fallback without Numba, and the reference for the kernel `bodies`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import fastavro
import numpy as np
import pyarrow as pa

from parsers.flume.event import Kind, Unwrapped

_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "AvroFlumeEvent",
        "fields": [{"name": "headers", "type": {"type": "map", "values": "string"}}, {"name": "body", "type": "bytes"}],
    }
)
_MAX_NUMBER_BYTES = 9


class NoEvent(Exception):
    """The value is not exactly one event. The argument is its kind."""


def unwrapped(values: pa.BinaryArray, *, strict: bool) -> Unwrapped:
    """Extract the lines from their events. With `strict`, a value that is not an event has no line, else it is one."""
    kinds = np.zeros(len(values), np.uint8)
    lines = values.to_pylist()
    for row, value in enumerate(lines):
        if not value:
            continue
        try:
            _, lines[row] = event(value)
        except NoEvent as found:
            kinds[row] = found.args[0] if strict else Kind.EVENT
    rows = np.flatnonzero(kinds == Kind.EVENT)
    return pa.array([lines[row] for row in rows.tolist()], pa.binary()), kinds


def headers(values: pa.BinaryArray, names: Sequence[str]) -> list[pa.BinaryArray]:
    """Return a column for each name, null if a value is not an event or its event has no such header."""
    found = [_headers(value) for value in values.to_pylist()]
    return [pa.array([each.get(name) for each in found], pa.binary()) for name in names]


def _headers(value: bytes | None) -> dict[str, str]:
    try:
        return event(value)[0] if value else {}
    except NoEvent:
        return {}


def event(value: bytes) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body. Raises NoEvent if the value is not exactly one event."""
    source = _Source(value)
    try:
        found = cast("dict[str, Any]", fastavro.schemaless_reader(source, _SCHEMA, None))  # type: ignore[arg-type]
    except UnicodeDecodeError as error:
        raise NoEvent(Kind.MALFORMED) from error
    if source.rest:
        raise NoEvent(Kind.LEFTOVER)
    return found["headers"], found["body"]


class _Source:
    """
    A value as a file for fastavro.

    fastavro reads a number byte by byte and a text at once, and trusts both: a negative size reads to the end, and a
    number that is too long is cut to 64 bits. Here such a read raises NoEvent, and so does a read past the end. No read
    exceeds the value, so a claimed size of 2^60 bytes allocates nothing.
    """

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._at = 0
        self._unfinished = 0

    @property
    def rest(self) -> int:
        return len(self._value) - self._at

    def read(self, size: int) -> bytes:
        """
        Return exactly the next `size` bytes, or raise NoEvent; also if a number has more than nine bytes.

        No size in a record comes near the 2^62 that such a number stands for.
        """
        end = self._at + size
        piece = self._value[self._at : end]
        if len(piece) != size:
            raise NoEvent(Kind.MALFORMED if size < 0 else Kind.TRUNCATED)
        self._at = end
        if size == 1:
            # A one-byte text is counted too. That is harmless: the number before it has ended, and a header of one byte
            # from 0x80 up is not UTF-8.
            self._unfinished = self._unfinished + 1 if piece >= b"\x80" else 0
            if self._unfinished == _MAX_NUMBER_BYTES:
                raise NoEvent(Kind.MALFORMED)
        return piece
