"""
Runs the parsers' kernels on buffers next to forbidden memory, where any read or write out of bounds ends the process.

Usage: python -m tests.fuzz.guarded LINES SEED [FOLDER…]: each file of a folder is one more value.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parsers.compiled import kernels
from parsers.compiled.buffers import addresses
from parsers.delimited import Delimited
from parsers.fields import FieldParser
from parsers.fields.compiled import _NO_CELLS, Compiled
from parsers.fields.formats import Cells
from parsers.fields.marked import Marked
from parsers.idc_access_log import IdcAccessLog
from parsers.json_lines import JsonLines, Members
from parsers.regex import Matched, Regex
from parsers.testing import batch
from tests.fuzz.engines import HEADERS
from tests.fuzz.formats import cases
from tests.fuzz.lines import seeds
from tests.fuzz.mutations import Mutator

PAGE = mmap.PAGESIZE
ROOM = 256 * PAGE
BOUNDS_ARE_CHECKED = os.environ.get("NUMBA_BOUNDSCHECK") == "1"
OFFSETS = 8
"""The size in bytes of one row's offsets."""

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guarded:
    """Memory between two forbidden pages. It holds one buffer at a time."""

    def __init__(self) -> None:
        """Allocate the memory. It is freed only when the process ends."""
        self._memory = mmap.mmap(-1, ROOM + 2 * PAGE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for forbidden in (self._base, self._base + PAGE + ROOM):
            if libc.mprotect(forbidden, PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.address = 0

    def place(self, size: int, *, at_end: bool) -> int:
        """Return the address of a buffer right after the first forbidden page or right before the last."""
        assert size <= ROOM
        self.address = self._base + PAGE + (ROOM - size if at_end else 0)
        return self.address

    def put(self, content: bytes, *, at_end: bool) -> int:
        """Return the address of a buffer with this content."""
        ctypes.memmove(self.place(len(content), at_end=at_end), content, len(content))
        return self.address

    def read(self, size: int) -> bytes:
        """Return the first bytes of the buffer."""
        return ctypes.string_at(self.address, size)


class Kernels:
    """Calls each kernel with one value. Its input and output are in guarded memory."""

    def __init__(self) -> None:
        """Make the parsers and allocate each buffer."""
        delimited = Delimited(fields=["a", "b"], output="{b}|{a}", escape=["a"], engine="compiled")
        pointers = {"b": "/a/b", "k": "/key"}
        written = {"output": ["k", "b"], "output_format": "json", "escape": ["b"], "engine": "compiled"}
        self._parsers: list[FieldParser] = [
            IdcAccessLog(engine="compiled"),
            delimited,
            Delimited(fields=["b", "k"], **written, checks={"k": {"matches": "."}}),  # type: ignore[arg-type]
            JsonLines(fields=pointers, **written),  # type: ignore[arg-type]
            Regex(pattern='^(?P<b>[^ ,]*)[ ,](?P<k>(?:[^"]|"[^"]*")*)$', **written),  # type: ignore[arg-type]
        ]
        self._values, self._input_offsets, self._out, self._out_offsets, self._scratch = (Guarded() for _ in range(5))

    def check(self, value: bytes) -> None:
        """Parse a value at the start of readable memory and one at its end. Fail if the output differs."""
        for at_end in (False, True):
            ends = np.array([0, len(value)], np.int32).tobytes()
            offsets = pa.foreign_buffer(self._input_offsets.put(ends, at_end=at_end), OFFSETS)
            text = pa.foreign_buffer(self._values.put(value, at_end=at_end), len(value))
            lines: pa.BinaryArray = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, text], 0)
            for parser in self._parsers:
                self._cleanse(parser, lines, value, at_end=at_end)
            self._open(lines, at_end=at_end)

    def _cleanse(self, parser: FieldParser, lines: pa.BinaryArray, value: bytes, *, at_end: bool) -> None:
        worker: Any = parser._worker
        assert isinstance(worker, Compiled)
        written = parser.parse(batch([value])).values
        cells = self._cells(worker, lines, at_end=at_end) if worker._needs_cells else _NO_CELLS
        work: Any = worker._work(lines, cells)
        work.out, work.out_offsets = self._out, self._out_offsets
        self._out_offsets.place(OFFSETS, at_end=at_end)
        # A kernel may require six bytes of room for each byte, but may write only the outcome and SLACK more.
        work.capacity = 7 * (worker._copies * lines.nbytes + worker._extra)
        # It may find out in the middle of a line that a text is illegal.
        size = sum(map(len, written.to_pylist())) if len(written) else work.capacity
        self._out.place(size + kernels.SLACK, at_end=at_end)
        worker._run(work)
        assert [self._out.read(work.written)][: len(written)] == written.to_pylist(), value

    def _cells(self, worker: Any, lines: pa.BinaryArray, *, at_end: bool) -> Cells:
        form = worker._form
        cells = Cells(np.zeros((1, 2, 2), np.int64), np.zeros(1, np.uint8))
        array = addresses(lines)
        if isinstance(form, Members):
            scratch = self._scratch.place(lines.nbytes - OFFSETS + kernels.SLACK, at_end=at_end)
            kernels.members(array, form._texts.ctypes.data, form._table, cells.spans, cells.found, scratch)
        elif isinstance(form, Matched):
            assert form._automaton is not None
            kernels.groups(array, *form._automaton, form._places, cells.spans, cells.found)
        else:
            assert isinstance(form, Marked)
            kernels.marked(array, worker._texts.ctypes.data, worker._shape, cells.spans, cells.found)
            self._gather(cells.spans[:, 1] * cells.found[0], trimmed=True, at_end=at_end)
        return cells

    def _open(self, values: pa.BinaryArray, *, at_end: bool) -> None:
        spans, kinds = np.empty((1, 2), np.int64), np.empty(1, np.uint8)
        kernels.bodies(addresses(values), spans, kinds)
        self._gather(spans, trimmed=False, at_end=at_end)
        for name in HEADERS:
            kernels.headers(addresses(values), kinds, np.array(list(name.encode()), np.uint8), spans)
            self._gather(spans, trimmed=False, at_end=at_end)

    def _gather(self, spans: NDArray[np.int64], *, trimmed: bool, at_end: bool) -> None:
        out = self._out.place(int(spans[0, 1] - spans[0, 0]) + kernels.SLACK, at_end=at_end)
        kernels.gather(spans, int(trimmed), out, self._out_offsets.place(OFFSETS, at_end=at_end))


def values(count: int, seed: int, corpus: Sequence[bytes]) -> Iterator[bytes]:
    """Yield known values, values cut at each position, those of a corpus, and this many damaged ones."""
    lines, events = seeds()
    good = max(lines, key=lambda line: len(line) if len(line) < 300 else 0)
    for whole in (good, max(events, key=lambda event: len(event) if len(event) < 300 else 0)):
        yield from (whole[:size] for size in range(len(whole) + 1))
        yield from (whole[size:] for size in range(len(whole)))
    yield from (b"x" * n + b"," + b"y" * m for n in (0, 1, 31, 63, 64) for m in (0, 1, 15, 16, 17, 31, 33, 64))
    yield from (start + b"\xf0\x9f\x98"[:n] + end for n in range(4) for start, end in ((b"", b","), (b",", b"")))
    formats = [line for case in cases().values() for line in case.lines]
    yield from (*lines, *events, *formats, *corpus)
    yield from (line[:size] for line in cases()["json"].lines for size in range(len(line)))
    mutator = Mutator([*lines, *events, *formats, *(each for each in corpus if each)], Random(seed))
    yield from (value for value in islice(iter(lambda: mutator.values(1)[0], ...), count) if value is not None)


def prove_that_bounds_are_checked() -> None:
    """Fail if a kernel can write past an array. Numba's cache may hold code without bounds checks."""
    ends = np.zeros(2, np.int32)
    try:
        kernels.bodies((0, ends.ctypes.data, 0, 0), np.empty((0, 2), np.int64), np.empty(1, np.uint8))
    except IndexError:
        return
    raise AssertionError("nothing checks the bounds: set NUMBA_CACHE_DIR to an empty folder")


def main(arguments: Sequence[str]) -> None:
    """Check the values that the command line asks for, and print their number."""
    count, seed, *folders = arguments
    corpus = [file.read_bytes() for folder in folders for file in sorted(Path(folder).iterdir())]
    if BOUNDS_ARE_CHECKED:
        prove_that_bounds_are_checked()
    kernel, checked = Kernels(), 0
    for value in values(int(count), int(seed), corpus):
        kernel.check(value)
        checked += 1
    bounds = " and with bounds checks" if BOUNDS_ARE_CHECKED else ""
    print(f"{checked:,} values between forbidden pages{bounds}")


if __name__ == "__main__":
    main(sys.argv[1:])
