"""How a value reads as a Flume event, and the lines extracted from a batch of values."""

from __future__ import annotations

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


Unwrapped = tuple[pa.BinaryArray, NDArray[np.uint8]]
"""
The lines extracted from a batch of values, and the `Kind` of each value: only an `EVENT` has a line.

A null or an empty value is passed on unchanged.
"""
