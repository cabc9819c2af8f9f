"""The rules of a delimited line as a compiled kernel over the buffers of an Arrow array; importing this needs Numba."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parsers import kernel
from parsers.contract import Parsed
from parsers.layout import Check, Form, Layout, Refusal

_MOST_BYTES = 2**31 - 1
_CHECKS = {
    Check.NOT_EMPTY: kernel.NOT_EMPTY,
    Check.DATETIME: kernel.DATETIME,
    Check.IP: kernel.IP,
    Check.PORT: kernel.PORT,
}
_FORMS = {
    Form.LITERAL: kernel.LITERAL,
    Form.CLEAN: kernel.CLEAN,
    Form.ADDRESS: kernel.ADDRESS,
    Form.EXACT: kernel.EXACT,
    Form.ESCAPED: kernel.ESCAPED,
}
_SHOWN = 61  # one byte more than a sentence shows, so that it can tell that there is more


@dataclass(frozen=True, slots=True)
class Buffers:
    """Where the parts of an Arrow array lie; the array must stay alive."""

    values: int
    offsets: int
    validity: int
    first: int
    total: int
    size: int

    @classmethod
    def of(cls, lines: pa.BinaryArray) -> Buffers:
        """Look up the addresses; nothing is copied."""
        validity, offsets, values = lines.buffers()
        return cls(
            values=values.address if values else 0,
            offsets=offsets.address + 4 * lines.offset if offsets else 0,
            validity=validity.address if validity and lines.null_count else 0,
            first=lines.offset,
            total=len(lines),
            size=lines.nbytes,
        )


class Compiled:
    """Cleanses a batch with the kernel."""

    def __init__(self, layout: Layout) -> None:
        """Write the layout as the tables that the kernel reads."""
        self._layout = layout
        literals = [piece.literal for piece in layout.pieces]
        self._texts = np.frombuffer(b"".join((layout.marker, layout.separator, *literals)), np.uint8).copy()
        self._checks = _table([(check.field, _CHECKS[check.check], check.trimmed) for check in layout.checks], 3)
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
        """Cleanse every line that can be."""
        work = _Work(Buffers.of(lines))
        # Output grows only by what is escaped, so nearly every batch fits in the size of its input.
        work.reserve(self._copies * work.input.size + self._extra * work.input.total)
        self._run(work)
        if work.rest:
            work.reserve(work.written + 3 * self._copies * work.input.size + self._extra * work.rest)
            self._run(work)
        return self._parsed(lines, work)

    def _run(self, work: _Work) -> None:
        source = work.input
        kernel.cleanse(
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
        if work.written > _MOST_BYTES:
            msg = f"the output of one batch would be {work.written} bytes, more than 2 GiB: parse fewer lines at a time"
            raise OverflowError(msg)

    def _parsed(self, lines: pa.BinaryArray, work: _Work) -> Parsed:
        good, bad = int(work.state[kernel.ROWS]), int(work.state[kernel.REJECTS])
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
        layout = self._layout
        if code == kernel.NO_VALUE:
            return layout.no_value()
        if code == kernel.EMPTY:
            return layout.empty()
        if code == kernel.NO_MARKER:
            return layout.no_marker()
        if code == kernel.FIELD_COUNT:
            return layout.field_count(number)
        values = cast("pa.Buffer", lines.buffers()[2])  # there are values, because this line was not empty
        value = values.slice(begin, min(end - begin, _SHOWN)).to_pybytes()
        return layout.failed(layout.checks[number], value) if code == kernel.CHECK else layout.illegal(number, value)


class _Work:
    """The input of one batch, and what the kernel has made of it so far."""

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
        """How many rows are still to be looked at."""
        return self.input.total - int(self.state[kernel.ROW])

    @property
    def written(self) -> int:
        """How many bytes of output there are."""
        return int(self.state[kernel.WRITTEN])

    def reserve(self, capacity: int) -> None:
        """Make room in the output, which keeps what is in it."""
        self.capacity = capacity
        self.out.resize(capacity + kernel.SLACK)


def _table(rows: list[tuple[int, ...]], columns: int) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(len(rows), columns)


def _piece_rows(layout: Layout) -> Iterator[tuple[int, int, int]]:
    at = len(layout.marker) + len(layout.separator)
    for piece in layout.pieces:
        if piece.form is Form.LITERAL:
            yield _FORMS[piece.form], at, len(piece.literal)
        else:
            yield _FORMS[piece.form], piece.field, 0
        at += len(piece.literal)


def _copies(layout: Layout) -> int:
    """Give how often one field is written at most."""
    fields = [piece.field for piece in layout.pieces if piece.form is not Form.LITERAL]
    return max(map(fields.count, fields))


def _anchor(separator: bytes) -> int:
    """Give the place of the byte that is rarest in the separator, the first of equals."""
    return min(range(len(separator)), key=lambda place: separator.count(separator[place]))
