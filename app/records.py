"""The Arrow batches that flow between consume, parse and produce inside a task, without an object per record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, Self, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.errors import PartitionError
from app.headers import Headers
from app.model import Partition

HeaderColumns = Sequence[tuple[str, pa.BinaryArray]]
"""Header values by name, one per row; null if a record lacks the header."""
NO_TIMESTAMP = -1
HEADER_FRAMING = 8
"""The most bytes that a header takes besides its name and value."""


def offsets_of(values: pa.BinaryArray) -> NDArray[np.int32]:
    """Return the offset of each value and the end of the last as a view of the array's own buffer."""
    buffer = values.buffers()[1]
    if buffer is None:  # an empty array may have no offsets
        return np.zeros(1, np.int32)
    offsets: NDArray[np.int32] = np.frombuffer(memoryview(buffer), np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]


@dataclass(frozen=True, slots=True)
class Chunk:
    """
    A batch of consumed records, perhaps of several partitions; row i of every array is the same record.

    Args:
        sources: the index of each record's partition in `partitions`.
        timestamps: milliseconds since the epoch, or `NO_TIMESTAMP`.
        keys: null if a record has no key (an empty key is not null).
        values: null if a record has no value (a tombstone).
        headers: reads the headers of a row, until the consumer is polled again; only rejects need them.
        epoch_of: reads the leader epoch of a row, until the consumer is polled again; NO_EPOCH if unknown.
        ends: partitions whose end was reached, with the offset after it (past control and aborted records).
        failures: the errors of partitions that the broker does not let us read.
        full: whether it has as many records as were requested, so that more are likely to wait.
        kept: the headers that cleansed lines keep.
        line_keys: the keys of the cleansed lines; None if they keep their records' keys.
    """

    partitions: Sequence[Partition]
    sources: NDArray[np.int32]
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: Callable[[int], Headers]
    epoch_of: Callable[[int], int]
    ends: Sequence[tuple[Partition, int]] = ()
    failures: Sequence[PartitionError] = ()
    full: bool = False
    kept: HeaderColumns = ()
    line_keys: pa.BinaryArray | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def keys_of_lines(self) -> pa.BinaryArray:
        return self.keys if self.line_keys is None else self.line_keys

    def first(self, rows: int) -> Chunk:
        """Return only the first rows, without the ends of the partitions that lose rows."""
        if rows == len(self):
            return self
        left = self.partitions_from(rows)
        return replace(
            self,
            sources=self.sources[:rows],
            offsets=self.offsets[:rows],
            timestamps=self.timestamps[:rows],
            keys=self.keys.slice(0, rows),
            values=self.values.slice(0, rows),
            ends=[(partition, end) for partition, end in self.ends if partition not in left],
        )

    def partitions_from(self, row: int) -> set[Partition]:
        if row == len(self):
            return set()
        return {self.partitions[source] for source in np.unique(self.sources[row:]).tolist()}

    def by_partition(self) -> Iterator[tuple[Partition, int, int]]:
        """Yield each partition with its first row and the row after its last; its rows are contiguous."""
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
        rows: for each line, the row of its key, timestamp and headers; ascending.
        keys: null if a line has no key.
        timestamps: milliseconds since the epoch, or `NO_TIMESTAMP`.
        headers: as `Chunk.kept`.
    """

    values: pa.BinaryArray
    rows: NDArray[np.int32]
    keys: pa.BinaryArray
    timestamps: NDArray[np.int64]
    headers: HeaderColumns = ()

    def __len__(self) -> int:
        return len(self.rows)

    def with_header(self, name: str, value: bytes | None) -> Lines:
        column = pa.repeat(pa.scalar(value, pa.binary()), len(self.keys))
        return replace(self, headers=[*self.headers, (name, column)])


class Record(NamedTuple):
    """A record of a topic, for operators' commands; `timestamp` is in milliseconds since the epoch."""

    partition: Partition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class OutgoingRecord(NamedTuple):
    """A record to write: a dead letter, a line on its own, or an entry of the ledger."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class DeadLetters(Sequence[OutgoingRecord]):
    """
    Rejected records of one source partition as one Arrow array; iteration creates them one by one.

    Args:
        parts: for each dead letter its value, its key, and for each header its name with a trailing NUL and its value.
        begins: the first part of each dead letter, and the total at the end.
        timestamps: milliseconds since the epoch, or `NO_TIMESTAMP`.
    """

    def __init__(self, parts: pa.BinaryArray, begins: NDArray[np.int32], timestamps: NDArray[np.int64]) -> None:
        self.parts, self.begins, self.timestamps = parts, begins, timestamps

    @classmethod
    def of(cls, dead_letters: Sequence[OutgoingRecord]) -> Self:
        """Return dead letters in this form, unchanged if they already have it."""
        if isinstance(dead_letters, cls):
            return dead_letters
        parts: list[bytes | None] = []
        begins = [0]
        for dead_letter in dead_letters:
            parts += dead_letter.value, dead_letter.key
            for name, value in dead_letter.headers:
                parts += name.encode() + b"\0", value
            begins.append(len(parts))
        stamps = np.array([dead_letter.timestamp for dead_letter in dead_letters], np.int64)
        return cls(pa.array(parts, pa.binary()), np.array(begins, np.int32), stamps)

    def sizes(self) -> NDArray[np.int32]:
        """Return the size of each dead letter in bytes."""
        return np.diff(offsets_of(self.parts)[self.begins])

    def __len__(self) -> int:
        return len(self.timestamps)

    @overload
    def __getitem__(self, at: int) -> OutgoingRecord: ...
    @overload
    def __getitem__(self, at: slice) -> DeadLetters: ...
    def __getitem__(self, at: int | slice) -> OutgoingRecord | DeadLetters:
        if isinstance(at, slice):
            begin, end, _ = at.indices(len(self))
            return DeadLetters(self.parts, self.begins[begin : max(begin, end) + 1], self.timestamps[begin:end])
        row = range(len(self))[at]
        begin, end = self.begins[row : row + 2].tolist()
        value, key, *headers = self.parts.slice(begin, end - begin).to_pylist()
        named = [(name[:-1].decode(), text) for name, text in zip(headers[::2], headers[1::2], strict=True)]
        return OutgoingRecord(key, value, named, int(self.timestamps[row]))


class Fate(NamedTuple):
    """
    The outcome of a source record.

    Args:
        to: the topic and partition of its line or dead letter; the number is -1 if the key chooses the partition.
        written: the line or the dead letter.
        reason: why it is rejected; empty if it is not.
        detail: a sentence about the reason.
        filtered: the filter that dropped its line, which then goes nowhere; empty if none did.
    """

    record: Record
    to: Partition
    written: OutgoingRecord
    reason: str = ""
    detail: str = ""
    filtered: str = ""
