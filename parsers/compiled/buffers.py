"""The addresses of an Arrow array's buffers, as kernels take a batch. Needs no Numba."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Buffers:
    """
    The addresses and sizes of one binary array. The array must outlive this object.

    Args:
        values: the address of the bytes of all rows, or 0 if the array has no such buffer.
        offsets: the address of the first row's offset; each offset has four bytes.
        validity: the address of the validity bitmap, or 0 if no row is null.
        first: the index of the first row's bit in the validity bitmap.
        total: the number of rows.
        size: the size of the array in bytes, offsets included.
    """

    values: int
    offsets: int
    validity: int
    first: int
    total: int
    size: int

    @classmethod
    def of(cls, lines: pa.BinaryArray) -> Buffers:
        """Look up the addresses without copying."""
        validity, offsets, values = lines.buffers()
        return cls(
            values=values.address if values else 0,
            offsets=offsets.address + 4 * lines.offset if offsets else 0,
            validity=validity.address if validity and lines.null_count else 0,
            first=lines.offset,
            total=len(lines),
            size=lines.nbytes,
        )

    @property
    def batch(self) -> tuple[int, int, int, int, int]:
        """The first arguments of a kernel that reads the rows."""
        return self.values, self.offsets, self.validity, self.first, self.total


def as_binary(lines: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.BinaryArray:
    """Return the lines as one binary array. Only text, large and chunked arrays are copied."""
    if isinstance(lines, pa.ChunkedArray):
        lines = lines.combine_chunks()
    return cast("pa.BinaryArray", lines if lines.type == pa.binary() else lines.cast(pa.binary()))
