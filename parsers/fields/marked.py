"""Fields between markers: what both `delimited` and its kernel know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from parsers.compiled.buffers import addresses
from parsers.fields.formats import Cells, RefusedLine, counted
from parsers.fields.layout import shown

REASONS = ("no_marker", "field_count")


@dataclass(frozen=True, slots=True)
class Marked:
    """
    A line with a fixed number of fields, each enclosed in a marker.

    Args:
        marker: the bytes at the beginning and at the end of the line. May be empty.
        separator: the bytes between two fields, markers included: marker + separator + marker.
        width: the number of fields.
    """

    marker: bytes
    separator: bytes
    width: int

    def split(self, line: bytes) -> Sequence[bytes]:
        size = len(self.marker)
        if not (len(line) >= 2 * size and line.startswith(self.marker) and line.endswith(self.marker)):
            raise RefusedLine("no_marker", f"the line does not begin and end with {shown(self.marker)}")
        return counted(line[size : len(line) - size].split(self.separator), self.width)

    def cells(self, lines: pa.BinaryArray) -> Cells:
        from parsers.compiled import kernels  # needs Numba, as every caller does

        cells = Cells(np.zeros((len(lines), self.width, 2), np.int64), np.zeros(len(lines), np.uint8), [lines])
        texts = np.frombuffer(self.texts, np.uint8)
        shape = np.array(self.shape, np.int64)
        kernels.marked(addresses(lines), texts.ctypes.data, shape, cells.spans, cells.found)
        return cells

    @property
    def texts(self) -> bytes:
        """The marker and the separator, as kernels take them."""
        return self.marker + self.separator

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes of the marker and the separator, the position of its rarest byte, and the number of fields."""
        rarest = min(range(len(self.separator)), key=lambda place: self.separator.count(self.separator[place]))
        return len(self.marker), len(self.separator), rarest, self.width
