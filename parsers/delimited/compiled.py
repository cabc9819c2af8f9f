"""Delimited lines on the compiled engine, through the kernel `cleanse`. Importing this needs Numba."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parsers.compiled import kernels
from parsers.compiled.buffers import Buffers
from parsers.contract import Parsed
from parsers.delimited.layout import Check, Form, Layout, Refusal

_MAX_BYTES = 2**31 - 1
_CHECKS = list(Check)
_SHOWN = 61  # one byte more than a reject's detail shows, so that `shown` knows whether the value is longer


class Compiled:
    """Cleanses a batch with the kernels."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        literals = [piece.literal for piece in layout.pieces]
        self._texts = np.frombuffer(b"".join((layout.marker, layout.separator, *literals)), np.uint8).copy()
        self._checks = _table([(check.field, _CHECKS.index(check.check), check.trimmed) for check in layout.checks], 3)
        self._pieces = _table(list(_piece_rows(layout)), 3)
        brackets = 2 * sum(piece.form is Form.ADDRESS for piece in layout.pieces)
        self._copies = _copies(layout)
        self._extra = sum(map(len, literals)) + brackets
        self._shape = np.array(
            [
                len(layout.marker),
                len(layout.separator),
                _anchor(layout.separator),
                len(layout.fields),
                layout.output_separator,
                self._copies,
                self._extra,
            ],
            np.int64,
        )

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """Raises OverflowError if the output would exceed 2 GiB, the limit of an Arrow array."""
        work = _Work(Buffers.of(lines))
        # Only escapes make the output longer than the input, so the input's size is nearly always enough.
        work.reserve(self._copies * work.input.size + self._extra * work.input.total)
        self._run(work)
        if work.rest:
            work.reserve(work.written + 3 * self._copies * work.input.size + self._extra * work.rest)
            self._run(work)
        return self._parsed(lines, work)

    def _run(self, work: _Work) -> None:
        source = work.input
        kernels.cleanse(
            source.values,
            source.offsets,
            source.validity,
            source.first,
            source.total,
            self._texts.ctypes.data,
            self._shape,
            self._checks,
            self._pieces,
            work.out.address,
            work.out_offsets.address,
            work.capacity,
            work.rows,
            work.reject_rows,
            work.rejects,
            work.state,
        )
        if work.written > _MAX_BYTES:
            msg = f"the output of one batch would be {work.written} bytes, more than 2 GiB: parse fewer lines at a time"
            raise OverflowError(msg)

    def _parsed(self, lines: pa.BinaryArray, work: _Work) -> Parsed:
        good, bad = int(work.state[kernels.ROWS]), int(work.state[kernels.REJECTS])
        work.out.resize(work.written)
        refusals = [self._refusal(lines, *reject) for reject in work.rejects[:bad].tolist()]
        return Parsed(
            values=cast(
                "pa.BinaryArray", pa.Array.from_buffers(pa.binary(), good, [None, work.out_offsets, work.out], 0)
            ),
            rows=work.rows[:good],
            reject_rows=work.reject_rows[:bad],
            reasons=pa.array([reason for reason, _ in refusals], pa.string()),
            details=pa.array([detail for _, detail in refusals], pa.string()),
        )

    def _refusal(self, lines: pa.BinaryArray, code: int, number: int, begin: int, end: int) -> Refusal:
        if begin == end:  # if all lines are null, there is no buffer
            return self._layout.refusal(code, number)
        values = cast("pa.Buffer", lines.buffers()[2])
        return self._layout.refusal(code, number, values.slice(begin, min(end - begin, _SHOWN)).to_pybytes())


class _Work:
    """The input of one batch and the results for the rows processed so far."""

    def __init__(self, source: Buffers) -> None:
        self.input = source
        self.capacity = 0
        self.out = pa.allocate_buffer(0, None, resizable=True)
        self.out_offsets = pa.allocate_buffer(4 * (source.total + 1))
        self.rows = np.empty(source.total, np.int32)
        self.reject_rows = np.empty(source.total, np.int32)
        self.rejects = np.empty((source.total, 4), np.int64)
        self.state: NDArray[np.int64] = np.zeros(4, np.int64)

    @property
    def rest(self) -> int:
        return self.input.total - int(self.state[kernels.ROW])

    @property
    def written(self) -> int:
        return int(self.state[kernels.WRITTEN])

    def reserve(self, capacity: int) -> None:
        """Make room for this many bytes of output in total; those already written stay."""
        self.capacity = capacity
        self.out.resize(capacity + kernels.SLACK)


def _table(rows: list[tuple[int, ...]], columns: int) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(len(rows), columns)


def _piece_rows(layout: Layout) -> Iterator[tuple[int, int, int]]:
    at = len(layout.marker) + len(layout.separator)
    for piece in layout.pieces:
        if piece.form is Form.LITERAL:
            yield piece.form, at, len(piece.literal)
        else:
            yield piece.form, piece.field, 0
        at += len(piece.literal)


def _copies(layout: Layout) -> int:
    """Return how often the most repeated field occurs in the output."""
    fields = [piece.field for piece in layout.pieces if piece.form is not Form.LITERAL]
    return max(map(fields.count, fields))


def _anchor(separator: bytes) -> int:
    """Return the position of the separator's rarest byte; the first of several."""
    return min(range(len(separator)), key=lambda place: separator.count(separator[place]))
