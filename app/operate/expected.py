"""What an audit expects of each record of a range, in at most 60 bytes per record: there may be millions."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from app.model import Partition


class Mark:
    """
    The marks of a record, in order.

    It is a reject; it is to be judged; its line was found; a line that names it was found; a dead-letter replay wrote
    its line; a dead letter of it was found; its task's dead letter was found; nothing was found; a filter dropped it;
    retention has not deleted its line; nor its dead letter.
    """

    REJECT, JUDGED, LINE, NAMED, REPLAYED, LETTER, ORIGINAL, MISSING, FILTERED, LINE_KEPT, LETTER_KEPT = (
        1 << bit for bit in range(11)
    )
    OUTCOME = LINE | REPLAYED | LETTER | FILTERED


class Origin(NamedTuple):
    """A record's place in the source."""

    partition: Partition
    offset: int


class Expected:
    """
    An index of records by offset and by the hash of their expected output; each record has a row.

    Add all records first, each partition in offset order; a record added twice counts once. Call `seal` before any
    lookup.
    """

    def __init__(self) -> None:
        self._added: dict[Partition, tuple[array[int], array[int], array[int]]] = {}
        self._partitions: list[Partition] = []
        self._begins: list[int] = []
        """The first row of each partition, and at the end the number of rows."""
        self.marks = array("H")

    def add(self, origin: Origin, content: int, marks: int) -> bool:
        """Add a record with the hash of its expected output and its marks; return whether it is new."""
        offsets, contents, marked = self._added.setdefault(origin.partition, (array("q"), array("q"), array("H")))
        if offsets and offsets[-1] >= origin.offset:
            return False
        offsets.append(origin.offset)
        contents.append(content)
        marked.append(marks)
        return True

    def seal(self) -> None:
        offsets, contents = array("q"), array("q")
        for partition in sorted(self._added):
            self._partitions.append(partition)
            self._begins.append(len(offsets))
            of_one = self._added.pop(partition)
            offsets += of_one[0]
            contents += of_one[1]
            self.marks += of_one[2]
        self._begins.append(len(offsets))
        order = np.argsort(np.frombuffer(contents, np.int64) if contents else np.zeros(0, np.int64), kind="stable")
        self._offsets, self.contents, self._order = offsets, contents, order.data
        self._sorted = np.array(contents, np.int64)[order].data

    def origin(self, row: int) -> Origin:
        return Origin(self._partitions[bisect_right(self._begins, row) - 1], self._offsets[row])

    def row(self, origin: Origin) -> int | None:
        place = bisect_left(self._partitions, origin.partition)
        if place == len(self._partitions) or self._partitions[place] != origin.partition:
            return None
        begin, end = self._begins[place : place + 2]
        row = bisect_left(self._offsets, origin.offset, begin, end)
        return row if row < end and self._offsets[row] == origin.offset else None

    def rows(self, content: int, skip: int = 0) -> Iterator[int]:
        """Yield the rows with this hash in partition and offset order, without the first `skip`."""
        place = bisect_left(self._sorted, content) + skip
        while place < len(self._sorted) and self._sorted[place] == content:
            yield self._order[place]
            place += 1

    def is_ambiguous(self, content: int) -> bool:
        """Whether records of several partitions have this hash; at least one record has it."""
        first, end = bisect_left(self._sorted, content), bisect_right(self._sorted, content)
        return self.origin(self._order[first]).partition != self.origin(self._order[end - 1]).partition
