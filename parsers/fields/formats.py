"""A format: how a line holds its fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parsers.compiled.buffers import addresses

Refusal = tuple[str, str]
"""A reason code and a sentence for people."""


class RefusedLine(Exception):
    """A line is rejected. The arguments are a refusal: reason and detail."""


@dataclass(frozen=True, slots=True)
class Cells:
    """
    The fields of a batch.

    Args:
        spans: the addresses of the begin and end of each field: shape (rows, fields, 2).
        found: 1 for each row whose line has the format, otherwise 0.
        memory: keeps alive what the addresses point to.
    """

    spans: NDArray[np.int64]
    found: NDArray[np.uint8]
    memory: Sequence[object] = ()


class Format(Protocol):
    """
    Finds the fields of a line. The line has no line ending and is not empty.

    `split` decides. `cells` is faster for a batch: it finds the same fields, and none in a line that `split` refuses.
    """

    def split(self, line: bytes, /) -> Sequence[bytes]:
        """Return the fields of a line. Raises RefusedLine."""

    def cells(self, lines: pa.BinaryArray) -> Cells: ...


def fields_of(form: Format, line: bytes | None) -> Sequence[bytes]:
    """Return the fields of a record's value. Raises RefusedLine."""
    if line is None:
        raise RefusedLine("empty", "the record has no value")
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if not line:
        raise RefusedLine("empty", "the line is empty")
    return form.split(line)


def counted(fields: Sequence[bytes], width: int) -> Sequence[bytes]:
    """Return the fields. Raises RefusedLine if there are not `width` of them."""
    if len(fields) != width:
        count = len(fields)
        raise RefusedLine("field_count", f"the line has {count} field{'s' * (count != 1)}, not {width}")
    return fields


class ByLine:
    """A format whose lines are split one by one, into `width` fields."""

    def __init__(self, split: Callable[[bytes], Sequence[bytes]], width: int) -> None:
        self.split = split
        self._width = width

    def cells(self, lines: pa.BinaryArray) -> Cells:
        fields: list[bytes] = []
        found = np.zeros(len(lines), np.uint8)
        for row, line in enumerate(lines.to_pylist()):
            try:
                fields += fields_of(self, line)
                found[row] = 1
            except RefusedLine:
                fields += [b""] * self._width
        values = pa.array(fields, pa.binary())
        return Cells(spans_of(values).reshape(len(found), self._width, 2), found, [values])


def spans_of(values: pa.BinaryArray) -> NDArray[np.int64]:
    """Return the addresses of the begin and end of each value."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return addresses(values)[0] + np.stack([offsets[:-1], offsets[1:]], axis=1).astype(np.int64)
