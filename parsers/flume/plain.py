"""Opens Flume's events in plain Python, by their structure alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from parsers.flume.event import Kind, Opened

_LAST_SHIFT = 63
_CONTINUES = 0x80


def opened(values: pa.BinaryArray, *, strict: bool) -> Opened:
    """
    Take the lines out of their events.

    Args:
        values: the batch.
        strict: whether a value that is no event has no line; if false, it is a line itself.
    """
    kinds = np.zeros(len(values), np.uint8)
    lines = values.to_pylist()
    for row, value in enumerate(lines):
        found = body(value) if value else value
        if not isinstance(found, NoEvent):
            lines[row] = found
        elif strict:
            kinds[row] = found.kind
    rows = np.flatnonzero(kinds == Kind.EVENT)
    return Opened(pa.array([lines[row] for row in rows.tolist()], pa.binary()), rows, kinds)


class NoEvent(NamedTuple):
    """Why there is no event where one was looked for."""

    kind: Kind


class Number(NamedTuple):
    """One of Avro's numbers, and the place behind it."""

    value: int
    end: int


def body(value: bytes) -> bytes | NoEvent:
    """Give the body of the one event that the value is."""
    at = _behind_headers(value, 0)
    size = _size(value, at) if isinstance(at, int) else at
    if isinstance(size, NoEvent):
        return size
    if size.end + size.value < len(value):
        return NoEvent(Kind.LEFTOVER)
    return value[size.end :]


def _behind_headers(value: bytes, at: int) -> int | NoEvent:
    while True:
        count = _number(value, at)
        if isinstance(count, NoEvent) or count.value == 0:
            return count if isinstance(count, NoEvent) else count.end
        end = _behind_block(value, count)
        if isinstance(end, NoEvent):
            return end
        at = end


def _behind_block(value: bytes, count: Number) -> int | NoEvent:
    """Skip a block of headers; a negative count says that the size of the block stands before it."""
    at, block_end = count.end, 0
    if count.value < 0:
        size = _size(value, at)
        if isinstance(size, NoEvent):
            return size
        at, block_end = size.end, size.end + size.value
    for _ in range(2 * abs(count.value)):  # a key and a value; each takes at least a byte, so a false count soon ends
        text = _size(value, at)
        if isinstance(text, NoEvent):
            return text
        at = text.end + text.value
        if not _is_utf8(value[text.end : at]):
            return NoEvent(Kind.MALFORMED)
    return at if block_end in (0, at) else NoEvent(Kind.MALFORMED)


def _size(value: bytes, at: int) -> Number | NoEvent:
    """Read the size of what follows, which must be there."""
    size = _number(value, at)
    if isinstance(size, NoEvent):
        return size
    if size.value < 0:
        return NoEvent(Kind.MALFORMED)
    return size if size.value <= len(value) - size.end else NoEvent(Kind.TRUNCATED)


def _number(value: bytes, at: int) -> Number | NoEvent:
    bits = 0
    for place, byte in enumerate(value[at : at + 10]):
        if 7 * place == _LAST_SHIFT and byte > 1:
            return NoEvent(Kind.MALFORMED)
        bits |= (byte & 127) << 7 * place
        if byte < _CONTINUES:
            return Number((bits >> 1) ^ -(bits & 1), at + place + 1)
    return NoEvent(Kind.TRUNCATED)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
