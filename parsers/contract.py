"""What a parser is: a batch of raw values in, cleansed values and rejects out. Pure: no Kafka, no Spark, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Rows = NDArray[np.int32]
"""Indices into the batch that was parsed, ascending."""


class Reject(NamedTuple):
    """One raw value that no cleansed line could be made of."""

    row: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """
    The outcome of one batch: every input row is either a cleansed value or a reject, never both, never neither.

    Args:
        values: the cleansed values, in input order.
        rows: `rows[i]` is the input row that `values[i]` was made of.
        reject_rows: the input rows that were rejected.
        reasons: one reason code for each rejected row; a code is short, lower-case and from a closed list.
        details: one sentence for each rejected row, for a person.
    """

    values: pa.BinaryArray
    rows: Rows
    reject_rows: Rows
    reasons: pa.StringArray
    details: pa.StringArray

    def rejects(self) -> Iterator[Reject]:
        """Yield the rejects one by one, in input order."""
        columns = zip(self.reject_rows.tolist(), self.reasons.to_pylist(), self.details.to_pylist(), strict=True)
        return starmap(Reject, columns)


@runtime_checkable
class Parser(Protocol):
    """
    Turns raw lines into cleansed lines.

    A parser is built once per task from the `parser` section of the configuration (its keys, except `name`, become
    keyword arguments, with `.` and `-` written as `_`) and must not keep state between batches.
    """

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """
        Parse one batch.

        A null is a record without a value (a Kafka tombstone). Data never raises: what cannot be parsed is a reject,
        and one row's bytes never change the outcome of another row.
        """
        ...
