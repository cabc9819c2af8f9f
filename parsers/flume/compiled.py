"""Opens Flume's events on the compiled engine. Importing this needs Numba."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from parsers.compiled import kernels
from parsers.compiled.buffers import addresses, gathered
from parsers.flume.event import Kind, Unwrapped


def unwrapped(values: pa.BinaryArray, *, strict: bool) -> Unwrapped:
    """Extract the lines from their events. With `strict`, a value that is not an event has no line, else it is one."""
    spans, kinds = np.empty((len(values), 2), np.int64), np.empty(len(values), np.uint8)
    events = kernels.bodies(addresses(values), spans, kinds)
    if not strict:
        kinds[:] = Kind.EVENT
        if events == 0:
            return values, kinds
    rows = np.flatnonzero(kinds == Kind.EVENT)
    valid = values.is_valid().to_numpy(zero_copy_only=False)[rows] if values.null_count else None
    return gathered(spans[rows], valid), kinds


def headers(values: pa.BinaryArray, names: Sequence[str]) -> list[pa.BinaryArray]:
    """Return a column for each name, null if a value is not an event or its event has no such header."""
    spans, kinds = np.empty((len(values), 2), np.int64), np.empty(len(values), np.uint8)
    kernels.bodies(addresses(values), spans, kinds)
    columns = []
    for name in names:
        kernels.headers(addresses(values), kinds, np.array(list(name.encode()), np.uint8), spans)
        columns.append(gathered(spans, spans[:, 0] != 0))
    return columns
