"""The buffers of Arrow arrays, as kernels take and fill them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def addresses(values: pa.BinaryArray) -> tuple[int, int, int, int]:
    """
    Return where the values are, as kernels take an array, without copying. The array must outlive the addresses.

    They are: the address of the bytes of all rows, or 0 if there is no such buffer; the address of the first row's
    offset, each of which has four bytes; the address of the validity bitmap, or 0 if no row is null; and the index of
    the first row's bit there.
    """
    validity, offsets, texts = values.buffers()
    return (
        texts.address if texts else 0,
        offsets.address + 4 * values.offset if offsets else 0,
        validity.address if validity and values.null_count else 0,
        values.offset,
    )


def gathered(
    spans: NDArray[np.int64], valid: NDArray[np.bool_] | None = None, *, trimmed: bool = False
) -> pa.BinaryArray:
    """Copy the texts between these addresses, null if not `valid`; without blanks around them if `trimmed`."""
    from parsers.compiled import kernels  # needs Numba, as every caller does

    out = pa.allocate_buffer(int((spans[:, 1] - spans[:, 0]).sum()) + kernels.SLACK)
    offsets = pa.allocate_buffer(4 * (len(spans) + 1))
    kernels.gather(spans, int(trimmed), out.address, offsets.address)
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return cast("pa.BinaryArray", pa.Array.from_buffers(pa.binary(), len(spans), [validity, offsets, out]))


def as_binary(lines: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.BinaryArray:
    """Return the lines as one binary array. Only text, large and chunked arrays are copied."""
    if isinstance(lines, pa.ChunkedArray):
        lines = lines.combine_chunks()
    return cast("pa.BinaryArray", lines if lines.type == pa.binary() else lines.cast(pa.binary()))
