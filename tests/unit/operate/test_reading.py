"""One-off commands need the answer of every partition."""

from __future__ import annotations

import pytest

from app.errors import Unreachable
from app.model import Partition
from app.operate.reading import whole

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
