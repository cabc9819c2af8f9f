"""The contract of a parser: it takes a batch of raw values and returns cleansed values and rejects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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


def breaches(parsed: object, records: int) -> Iterator[str]:
    """Yield how a parser's result for a batch of `records` rows breaks the contract, in words for its author."""
    if not isinstance(parsed, Parsed):
        yield f"the result is {type(parsed).__name__}, not Parsed"
        return
    for name, kind in (("values", pa.binary()), ("reasons", pa.string()), ("details", pa.string())):
        column = getattr(parsed, name)
        if not isinstance(column, pa.Array) or column.type != kind:
            yield f"{name} is {getattr(column, 'type', type(column).__name__)}, not an Arrow array of {kind}"
        elif column.null_count:
            yield f"{name} holds {column.null_count} nulls"
        elif invalid := _invalid(column):
            yield f"{name} is not valid: {invalid}"
    if pc.any(pc.equal(parsed.reasons, "")).as_py():
        yield "a reason is empty"
    for name in ("rows", "reject_rows"):
        rows = getattr(parsed, name)
        if not isinstance(rows, np.ndarray) or rows.dtype != np.int32 or rows.ndim != 1:
            yield f"{name} is {getattr(rows, 'dtype', type(rows).__name__)}, not a one-dimensional array of int32"
        elif not rows.flags.c_contiguous:
            yield f"{name} is not contiguous"
    yield from _miscounts(parsed, records)


def _invalid(column: pa.Array) -> str:
    """Return what is wrong inside an array, such as a text that is not UTF-8; empty if nothing is."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        return str(error)
    return ""


def _miscounts(parsed: Parsed, records: int) -> Iterator[str]:
    aligned = len(parsed.values) == len(parsed.rows) and (
        len(parsed.reasons) == len(parsed.details) == len(parsed.reject_rows)
    )
    outcomes = np.bincount(np.concatenate([parsed.rows, parsed.reject_rows]), minlength=records)
    ascending = (np.diff(parsed.rows) > 0).all() and (np.diff(parsed.reject_rows) > 0).all()
    if not aligned or not ascending or len(outcomes) != records or (outcomes != 1).any():
        yield f"{len(parsed.rows)} rows, {len(parsed.reject_rows)} rejects, {records} in"


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
