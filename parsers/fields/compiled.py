"""Lines of any format on the compiled engine, through the kernels. Importing this needs Numba."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parsers.compiled import kernels
from parsers.compiled.buffers import Buffers
from parsers.contract import Parsed
from parsers.fields.checks import Check, Test
from parsers.fields.formats import Cells, Format, Refusal, RefusedLine, fields_of
from parsers.fields.layout import Form, Layout
from parsers.fields.marked import Marked

_MAX_BYTES = 2**31 - 1
_CHECKS = list(Check)
_SHOWN = 61  # one byte more than a reject's detail shows, so that `shown` knows whether the value is longer


class Compiled:
    """Cleanses a batch with the kernels. That of marked lines finds the fields itself, which saves the cells."""

    def __init__(self, layout: Layout, form: Format) -> None:
        self._layout = layout
        self._form = form
        self._tests = {number: each for number, each in enumerate(layout.checks) if not isinstance(each.check, Check)}
        self._needs_cells = bool(self._tests) or layout.is_json or not isinstance(form, Marked)
        marks = form if isinstance(form, Marked) else Marked(b"", b"-", len(layout.fields))
        literals = [piece.literal for piece in layout.pieces]
        self._texts = np.frombuffer(b"".join((marks.texts, *literals)), np.uint8).copy()
        self._checks = _table([(check.field, _kind(check.check), check.trimmed) for check in layout.checks], 3)
        self._pieces = _table(list(_piece_rows(layout, len(marks.texts))), 3)
        self._copies = _copies(layout)
        self._growth = 6 if layout.is_json else 3
        self._extra = sum(map(len, literals)) + 2 * sum(piece.form is Form.ADDRESS for piece in layout.pieces)
        self._shape = np.array(
            [*marks.shape, layout.output_separator, self._copies, self._growth, self._extra], np.int64
        )

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """Raises OverflowError if the output would exceed 2 GiB, the limit of an Arrow array."""
        work = self._work(Buffers.of(lines), self._form.cells(lines) if self._needs_cells else None)
        # Only escapes make the output longer than the input, so the input's size is nearly always enough.
        work.reserve(self._copies * work.size + self._extra * work.input.total)
        self._run(work)
        if work.rest:
            work.reserve(work.written + self._growth * self._copies * work.size + self._extra * work.rest)
            self._run(work)
        return self._parsed(lines, work)

    def _work(self, source: Buffers, cells: Cells | None) -> _Work:
        given = np.zeros((source.total if self._tests else 0, len(self._layout.checks)), np.uint8)
        for number, each in self._tests.items() if cells else ():
            accepted = cast("Test", each.check).accepted(
                _column(cast("Cells", cells), each.field, trimmed=each.trimmed)
            )
            given[:, number] = accepted.to_numpy(zero_copy_only=False)
        return _Work(source, cells, given)

    def _run(self, work: _Work) -> None:
        source, cells = work.input, work.cells
        rules_and_results = (
            self._texts.ctypes.data, self._shape, self._checks, self._pieces,
            work.out.address, work.out_offsets.address, work.capacity,
            work.rows, work.reject_rows, work.rejects, work.state,
        )  # fmt: skip
        if cells is None:
            kernels.cleanse_marked(
                source.values, source.offsets, source.validity, source.first, source.total, *rules_and_results
            )
        else:
            kernels.cleanse_cells(cells.spans, cells.found, work.given, *rules_and_results)
        if work.written > _MAX_BYTES:
            msg = f"the output of one batch would be {work.written} bytes, more than 2 GiB: parse fewer lines at a time"
            raise OverflowError(msg)

    def _parsed(self, lines: pa.BinaryArray, work: _Work) -> Parsed:
        good, bad = int(work.state[kernels.ROWS]), int(work.state[kernels.REJECTS])
        work.out.resize(work.written)
        reject_rows = work.reject_rows[:bad]
        rejects = zip(reject_rows.tolist(), work.rejects[:bad].tolist(), strict=True)
        refusals = [self._refusal(lines[row], *reject) for row, reject in rejects]
        return Parsed(
            values=cast(
                "pa.BinaryArray", pa.Array.from_buffers(pa.binary(), good, [None, work.out_offsets, work.out], 0)
            ),
            rows=work.rows[:good],
            reject_rows=reject_rows,
            reasons=pa.array([reason for reason, _ in refusals], pa.string()),
            details=pa.array([detail for _, detail in refusals], pa.string()),
        )

    def _refusal(self, line: pa.BinaryScalar, rule: int, number: int, begin: int, end: int) -> Refusal:
        if rule == kernels.FORMAT:
            return self._mismatch(line.as_py())
        value = ctypes.string_at(begin, min(end - begin, _SHOWN)) if end > begin else b""
        return self._layout.failed(number, value) if rule == kernels.CHECK else self._layout.illegal(number, value)

    def _mismatch(self, line: bytes | None) -> Refusal:
        try:
            fields_of(self._form, line)
        except RefusedLine as refused:
            reason, detail = refused.args
            return reason, detail
        raise AssertionError(f"the fields of {line!r} are found alone and not in a batch")


class _Work:
    """The input of one batch and the results for the rows processed so far."""

    def __init__(self, source: Buffers, cells: Cells | None, given: NDArray[np.uint8]) -> None:
        self.input = source
        self.cells = cells
        self.given = given
        self.size = source.size if cells is None else int((cells.spans[..., 1] - cells.spans[..., 0]).sum())
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


def _column(cells: Cells, field: int, *, trimmed: bool) -> pa.BinaryArray:
    """Return the values of one field, empty for a row whose fields were not found."""
    size = int((cells.spans[:, field, 1] - cells.spans[:, field, 0])[cells.found != 0].sum())
    out, out_offsets = pa.allocate_buffer(size + kernels.SLACK), pa.allocate_buffer(4 * (len(cells.found) + 1))
    kernels.column(cells.spans, cells.found, field, int(trimmed), out.address, out_offsets.address)
    return cast("pa.BinaryArray", pa.Array.from_buffers(pa.binary(), len(cells.found), [None, out_offsets, out], 0))


def _table(rows: list[tuple[int, ...]], columns: int) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(len(rows), columns)


def _kind(check: Check | Test) -> int:
    return _CHECKS.index(check) if isinstance(check, Check) else kernels.GIVEN


def _piece_rows(layout: Layout, at: int) -> Iterator[tuple[int, int, int]]:
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
