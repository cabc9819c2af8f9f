"""What flows between consume, parse and produce, inside one task: Arrow arrays, never one object per record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.errors import PartitionError
from app.model import Partition

Headers = Sequence[tuple[str, bytes | None]]
NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class Chunk:
    """
    A batch of consumed records, perhaps of several partitions; row i of every array is the same record.

    Args:
        partitions: the partitions that `sources` points into.
        sources: which partition each record came from.
        offsets: where it stood there.
        timestamps: milliseconds since the epoch, or `NO_TIMESTAMP`.
        keys: null where a record has no key (an empty key is not null).
        values: null where a record has no value (a tombstone).
        headers: reads the headers of one row, until the consumer is polled again; only rejects need them.
        ends: partitions whose end was reached, with the offset behind it (beyond control and aborted records).
        failures: what the broker said of partitions that it would not read.
    """

    partitions: Sequence[Partition]
    sources: NDArray[np.int32]
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: Callable[[int], Headers]
    ends: Sequence[tuple[Partition, int]] = ()
    failures: Sequence[PartitionError] = ()

    def __len__(self) -> int:
        return len(self.offsets)

    def stretches(self) -> Iterator[tuple[Partition, int, int]]:
        """Yield each partition's rows as they stand together: the first, and the one behind the last."""
        begins = [0, *(np.flatnonzero(np.diff(self.sources)) + 1).tolist(), len(self)]
        for begin, end in pairwise(begins):
            if end > begin:
                yield self.partitions[self.sources[begin]], begin, end


@dataclass(frozen=True, slots=True)
class Lines:
    """
    Cleansed lines of one source partition, with what they keep of their source records.

    Args:
        values: the lines.
        rows: for each line, the row of its source record's key and timestamp; ascending.
        keys: null where a record has no key.
        timestamps: milliseconds since the epoch, or `NO_TIMESTAMP`.
    """

    values: pa.BinaryArray
    rows: NDArray[np.int32]
    keys: pa.BinaryArray
    timestamps: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)


class Letter(NamedTuple):
    """One rejected record, as it goes to the dead-letter topic."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
