"""Opens Flume's events on the compiled engine. Importing this needs Numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parsers.compiled import kernels
from parsers.compiled.buffers import Buffers
from parsers.flume.event import Kind, Unwrapped


def unwrapped(values: pa.BinaryArray, *, strict: bool) -> Unwrapped:
    """Extract the lines from their events. With `strict`, a value that is not an event has no line, else it is one."""
    source = Buffers.of(values)
    spans = np.empty((source.total, 2), np.int64)
    kinds = np.empty(source.total, np.uint8)
    events = kernels.bodies(*source.batch, spans, kinds)
    if not strict:
        kinds[:] = Kind.EVENT
    rows = np.flatnonzero(kinds == Kind.EVENT)
    if not strict and events == 0:
        return Unwrapped(values, rows, kinds)
    valid = values.is_valid().to_numpy(zero_copy_only=False)[rows] if values.null_count else None
    return Unwrapped(_gathered(spans, rows, valid), rows, kinds)


def headers(values: pa.BinaryArray, names: Sequence[str]) -> list[pa.BinaryArray]:
    """Return a column for each name, null if a value is not an event or its event has no such header."""
    source = Buffers.of(values)
    spans = np.empty((source.total, 2), np.int64)
    kinds, found = np.empty(source.total, np.uint8), np.empty(source.total, np.uint8)
    kernels.bodies(*source.batch, spans, kinds)
    if source.validity:
        kinds[values.is_null().to_numpy(zero_copy_only=False)] = Kind.TRUNCATED
    rows = np.arange(source.total)
    columns = []
    for name in names:
        wanted = np.array(list(name.encode()), np.uint8)
        kernels.headers(source.values, source.offsets, source.total, kinds, wanted, spans, found)
        columns.append(_gathered(spans, rows, found))
    return columns


def _gathered(
    spans: NDArray[np.int64], rows: NDArray[np.int64], valid: NDArray[np.uint8 | np.bool_] | None
) -> pa.BinaryArray:
    """Return the texts of the picked spans, null where they are not `valid`."""
    out = pa.allocate_buffer(int((spans[rows, 1] - spans[rows, 0]).sum()) + kernels.SLACK)
    offsets = pa.allocate_buffer(4 * (len(rows) + 1))
    kernels.gather(spans, rows, out.address, offsets.address)
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return cast("pa.BinaryArray", pa.Array.from_buffers(pa.binary(), len(rows), [validity, offsets, out]))
