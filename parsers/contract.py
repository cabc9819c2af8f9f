"""The contract of a parser: it takes a batch of raw values and returns cleansed values and rejects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Rows = NDArray[np.int32]
"""Ascending row numbers in the parsed batch, from 0, in a one-dimensional array."""


class Reject(NamedTuple):
    """A rejected raw value: its row number in the batch, its reason code, and a sentence for people."""

    row: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """
    The result for one batch. Each input row is either a cleansed value or a reject.

    Args:
        values: the cleansed values, in input order, without nulls.
        rows: `rows[i]` is the input row of `values[i]`.
        reject_rows: the input rows that were rejected.
        reasons: `reasons[i]` is the reason code of `reject_rows[i]`: short, lower-case, from a list that is fixed while
            the parser runs.
        details: `details[i]` explains `reject_rows[i]` in a sentence.
    """

    values: pa.BinaryArray
    rows: Rows
    reject_rows: Rows
    reasons: pa.StringArray
    details: pa.StringArray

    @property
    def records(self) -> int:
        """The number of input rows."""
        return len(self.rows) + len(self.reject_rows)

    def rejects(self) -> Iterator[Reject]:
        """Return the rejects one by one, in input order."""
        columns = zip(self.reject_rows.tolist(), self.reasons.to_pylist(), self.details.to_pylist(), strict=True)
        return starmap(Reject, columns)


Parse = Callable[[pa.BinaryArray], Parsed]
"""Parses a batch. In isolation it may return the results for a prefix only."""


@runtime_checkable
class Parser(Protocol):
    """
    Turns raw lines into cleansed lines.

    Each task builds its parser from the `parser` section of the configuration. Its keys except `name` become keyword
    arguments, with `.` and `-` written as `_`. A parser is pure: it uses no network, files or clock, and keeps no
    state between batches.
    """

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """
        Return the result for one batch.

        It never raises because of data: a value that cannot be parsed is a reject. The bytes of one row never change
        the result of another. A null is a record without a value (a Kafka tombstone).
        """


FIELD = "field"
"""The group of a pattern that captures a field."""


@runtime_checkable
class HasFields(Protocol):
    """An optional part of the contract: the fields of a parser's lines, any of which can be a line's key."""

    @property
    def output_fields(self) -> Mapping[str, str]:
        """
        The patterns of the fields that can be located: RE2 regular expressions, applied to the bytes of a line.

        The only group, `(?P<field>…)`, is the field. A line that does not match has no key.
        """
