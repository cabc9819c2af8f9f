"""One-off commands need the answer of every partition."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from app.errors import Unreachable
from app.model import Partition
from app.operate.reading import Span, read, whole
from app.records import Record

A, B, C = (Partition("raw", number) for number in range(3))


def test_all_have_answered() -> None:
    """None is an answer, too."""
    assert {A: 1, B: None} == whole([A, B], {A: 1, B: None})


def test_a_partition_that_does_not_answer_is_named() -> None:
    """A missing answer is an error that names the partition."""
    with pytest.raises(
        Unreachable, match=r"^raw-1 \(and 1 more\) has no leader.* nothing was done: bring its broker back"
    ):
        whole([A, B, C], {A: 1})


def test_progress_counts_offsets() -> None:
    """Those of control records, too: otherwise a sink with a transaction per record would end at half of its bar."""
    batches = [[Record(A, 3, 0, None, b"", []), Record(B, 1, 0, None, b"", [])], [Record(A, 9, 0, None, b"", [])]]
    done: list[int] = []

    class Source:
        def batches(self, *_: object) -> Generator[list[Record]]:
            yield from [batches[0], [], batches[1]]

    assert batches == list(read(Source(), {A: Span(2, 12), B: Span(0, 5)}, done.append))
    assert [2 + 2, 6] == done
