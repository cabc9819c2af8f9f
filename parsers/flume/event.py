"""How a value reads as a Flume event, and the lines extracted from a batch of values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Kind(IntEnum):
    """
    How a value reads as an event.

    An event is bare Avro binary, without a magic byte or schema id, of the record
    `AvroFlumeEvent {headers: map<string>, body: bytes}`.
    """

    EVENT = 0
    TRUNCATED = 1  # it ends before the event does
    LEFTOVER = 2  # extra bytes follow the event
    MALFORMED = 3  # a header is not UTF-8, a size is negative, or a number has more than nine bytes


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """
    The lines extracted from a batch of values.

    Args:
        lines: the lines; a null or an empty value is passed on unchanged.
        rows: `rows[i]` is the row in the batch that `lines[i]` came from, ascending.
        kinds: the `Kind` of each value of the batch; only an `EVENT` has a line.
    """

    lines: pa.BinaryArray
    rows: NDArray[np.int64]
    kinds: NDArray[np.uint8]
