"""Lines of any format on the compiled engine, through the kernels. Importing this needs Numba."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parsers.compiled import kernels
from parsers.compiled.buffers import addresses, gathered
from parsers.contract import Parsed
from parsers.fields.checks import Check, Test
from parsers.fields.formats import Cells, Format, Refusal, RefusedLine, fields_of
from parsers.fields.layout import Form, Layout
from parsers.fields.marked import Marked

_MAX_BYTES = 2**31 - 1
_KINDS: Mapping[Check | Test, int] = {check: number for number, check in enumerate(Check)}
_SHOWN = 61  # one byte more than a reject's detail shows, so that `shown` knows whether the value is longer
_NO_CELLS = Cells(np.empty((0, 0, 2), np.int64), np.empty(0, np.uint8))


class Compiled:
    """Cleanses a batch with the kernels. That of marked lines finds the fields itself, which saves the cells."""

    def __init__(self, layout: Layout, form: Format) -> None:
        self._layout = layout
        self._form = form
        self._tests = [
            (number, each, each.check) for number, each in enumerate(layout.checks) if not isinstance(each.check, Check)
        ]
        self._needs_cells = bool(self._tests) or layout.is_json or not isinstance(form, Marked)
        marks = form if isinstance(form, Marked) else Marked(b"", b"-", len(layout.fields))
        literals = [piece.literal for piece in layout.pieces]
        self._texts = np.frombuffer(b"".join((marks.texts, *literals)), np.uint8).copy()
        self._checks = _table(
            (each.field, _KINDS.get(each.check, kernels.GIVEN), each.trimmed) for each in layout.checks
        )
        self._pieces = _table(_piece_rows(layout, len(marks.texts)))
        written = [piece.field for piece in layout.pieces if piece.form is not Form.LITERAL]
        self._copies = max(map(written.count, written))
        self._growth = (6 if layout.is_json else 3) * self._copies
        self._extra = sum(map(len, literals)) + 2 * sum(piece.form is Form.ADDRESS for piece in layout.pieces)
        self._shape = np.array([*marks.shape, layout.output_separator, self._growth, self._extra], np.int64)

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        """Raises OverflowError if the output would exceed 2 GiB, the limit of an Arrow array."""
        work = self._work(lines, self._form.cells(lines) if self._needs_cells else _NO_CELLS)
        # Only escapes make the output longer than the input, so the input's size is nearly always enough.
        work.reserve(self._copies * work.size + self._extra * work.rest)
        self._run(work)
        if work.rest:
            work.reserve(work.written + self._growth * work.size + self._extra * work.rest)
            self._run(work)
        return self._parsed(work)

    def _work(self, lines: pa.BinaryArray, cells: Cells) -> _Work:
        given = np.zeros((len(lines) if self._tests else 0, len(self._layout.checks)), np.uint8)
        for number, check, test in self._tests:
            # A row whose fields were not found may hold any addresses: its value is empty.
            values = gathered(cells.spans[:, check.field] * cells.found[:, np.newaxis], trimmed=check.trimmed)
            given[:, number] = test.accepted(values).to_numpy(zero_copy_only=False)
        return _Work(lines, cells, given)

    def _run(self, work: _Work) -> None:
        rules_and_results = (
            self._texts.ctypes.data, self._shape, self._checks, self._pieces,
            work.out.address, work.out_offsets.address, work.capacity, work.rows, work.rejects, work.state,
        )  # fmt: skip
        if work.cells is _NO_CELLS:
            kernels.cleanse_marked(addresses(work.lines), *rules_and_results)
        else:
            kernels.cleanse_cells(work.cells.spans, work.cells.found, work.given, *rules_and_results)
        if work.written > _MAX_BYTES:
            msg = f"the output of one batch would be {work.written} bytes, more than 2 GiB: parse fewer lines at a time"
            raise OverflowError(msg)

    def _parsed(self, work: _Work) -> Parsed:
        good = int(work.state[kernels.ROWS])
        rejects = work.rejects[: int(work.state[kernels.REJECTS])]
        work.out.resize(work.written)
        lines = work.lines
        refusals = [self._refusal(lines[row], rule, at, begin, end) for row, rule, at, begin, end in rejects.tolist()]
        return Parsed(
            values=cast(
                "pa.BinaryArray", pa.Array.from_buffers(pa.binary(), good, [None, work.out_offsets, work.out], 0)
            ),
            rows=work.rows[:good],
            reject_rows=rejects[:, 0].astype(np.int32),
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

    def __init__(self, lines: pa.BinaryArray, cells: Cells, given: NDArray[np.uint8]) -> None:
        self.lines = lines
        self.cells = cells
        self.given = given
        self.size = lines.nbytes if cells is _NO_CELLS else int((cells.spans[..., 1] - cells.spans[..., 0]).sum())
        self.capacity = 0
        self.out = pa.allocate_buffer(0, None, resizable=True)
        self.out_offsets = pa.allocate_buffer(4 * (len(lines) + 1))
        self.rows = np.empty(len(lines), np.int32)
        self.rejects = np.empty((len(lines), 5), np.int64)
        self.state: NDArray[np.int64] = np.zeros(4, np.int64)

    @property
    def rest(self) -> int:
        return len(self.lines) - int(self.state[kernels.ROW])

    @property
    def written(self) -> int:
        return int(self.state[kernels.WRITTEN])

    def reserve(self, capacity: int) -> None:
        """Make room for this many bytes of output in total; those already written stay."""
        self.capacity = capacity
        self.out.resize(capacity + kernels.SLACK)


def _table(rows: Iterable[tuple[int, int, int]]) -> NDArray[np.int64]:
    return np.array([*rows], np.int64).reshape(-1, 3)


def _piece_rows(layout: Layout, at: int) -> Iterator[tuple[int, int, int]]:
    for piece in layout.pieces:
        yield piece.form, at if piece.form is Form.LITERAL else piece.field, len(piece.literal)
        at += len(piece.literal)
