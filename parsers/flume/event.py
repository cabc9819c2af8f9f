"""What a value is when it is read as one of Flume's events, and the lines taken out of a batch of values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Kind(IntEnum):
    """
    What a value is when it is read as an event.

    An event is Avro's bare binary, without a magic byte or a schema id, of the record
    `AvroFlumeEvent {headers: map<string>, body: bytes}`.
    """

    EVENT = 0
    TRUNCATED = 1  # it ends before the event does
    LEFTOVER = 2  # more bytes follow the event
    MALFORMED = 3  # a header is not UTF-8, a size is negative, or a number has more than nine bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """
    The lines taken out of a batch of values.

    Args:
        lines: the lines; a null or an empty value is passed on as it is.
        rows: `rows[i]` is the row in the batch that `lines[i]` came from, ascending.
        kinds: the `Kind` of each value of the batch; those that are not `EVENT` have no line.
    """

    lines: pa.BinaryArray
    rows: NDArray[np.int64]
    kinds: NDArray[np.uint8]
