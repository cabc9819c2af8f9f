"""The results for some records of a partition, and their counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from app.executor.cleanse import Cleansed
from app.model import LastRead
from app.offsets.metadata import Counts
from app.records import Lines, OutgoingRecord

DEAD = OutgoingRecord(b"k", b"raw line", [], 1_000)


def test_a_record_that_kafka_refused_is_a_dead_letter_and_nothing_else() -> None:
    """It has no line, in the output or in the counts; the position stays."""
    lines = Lines(pa.array([b"line"]), np.array([0], np.int32), pa.array([b"k"]), np.array([1_000]))
    taken = Cleansed(1, 8, lines, 4, [], [], start=6, position=7, read=LastRead(7, 3))
    assert Counts(1, 1, {}, 8, 4) == taken.counts

    refused = taken.rejected(DEAD, "refused")

    assert [] == refused.lines.values.to_pylist() == refused.lines.rows.tolist()
    assert [DEAD] == refused.dead_letters
    assert Counts(1, 0, {"refused": 1}, 8, 0) == refused.counts
    assert (7, LastRead(7, 3)) == (refused.position, refused.read)
