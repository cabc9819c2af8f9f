"""The contract of a parser: it takes a batch of raw values and returns cleansed values and rejects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Rows = NDArray[np.int32]
"""Row numbers in the batch that was parsed, from 0, ascending: a one-dimensional array."""


class Reject(NamedTuple):
    """
    One raw value that was rejected.

    Args:
        row: its row number in the batch.
        reason: its reason code.
        detail: a sentence for a person.
    """

    row: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """
    The outcome of one batch. Each input row is either a cleansed value or a reject.

    Args:
        values: the cleansed values, in input order, without nulls.
        rows: `rows[i]` is the input row of `values[i]`. As long as `values`.
        reject_rows: the input rows that were rejected.
        reasons: `reasons[i]` is the reason code of `reject_rows[i]`: short, lower-case, from a list that the parser
            does not extend while it runs.
        details: `details[i]` is a sentence about `reject_rows[i]` for a person.
    """

    values: pa.BinaryArray
    rows: Rows
    reject_rows: Rows
    reasons: pa.StringArray
    details: pa.StringArray

    @property
    def records(self) -> int:
        """How many input rows this is the outcome of."""
        return len(self.rows) + len(self.reject_rows)

    def rejects(self) -> Iterator[Reject]:
        """Return the rejects one by one, in input order."""
        columns = zip(self.reject_rows.tolist(), self.reasons.to_pylist(), self.details.to_pylist(), strict=True)
        return starmap(Reject, columns)


@runtime_checkable
class Parser(Protocol):
    """
    Turns raw lines into cleansed lines.

    Each task builds its parser from the `parser` section of the configuration. The keys of that section, except `name`,
    become keyword arguments, with `.` and `-` written as `_`. A parser is pure: it uses no network, no files and no
    clock, and keeps no state between batches.
    """

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """
        Return the outcome of one batch.

        No data makes this raise: a value that cannot be parsed is a reject. The bytes of one row never change the
        outcome of another. A null is a record without a value (a Kafka tombstone).
        """
        ...


FIELD = "field"
"""The group of a pattern that holds a field."""


@runtime_checkable
class HasFields(Protocol):
    """What a parser may tell besides: where the fields of its lines are, so that one of them can be a line's key."""

    @property
    def output_fields(self) -> Mapping[str, str]:
        """
        The pattern of each field that can be told apart: a regular expression of RE2, applied to the bytes of a line.

        Its one group, `(?P<field>…)`, is the field. A line that it does not match has no key.
        """
        ...
