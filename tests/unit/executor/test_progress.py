"""What a lane has counted, around a commit whose outcome may be unknown."""

from __future__ import annotations

import pytest

from app.executor.progress import Progress
from app.offsets.metadata import NOTHING, Counts

TWO, THREE = Counts(2, 2), Counts(3, 2, {"empty": 1})


def test_what_is_taken_is_open_until_it_is_committed() -> None:
    """Only what is committed is done."""
    taken = Progress().taken(TWO).taken(THREE)

    assert Progress(NOTHING, TWO + THREE) == taken
    assert Progress(TWO + THREE) == taken.committing(5).committed()


@pytest.mark.parametrize(("committed", "done"), [(6, TWO), (7, TWO + THREE), (8, TWO + THREE)])
def test_the_committed_offset_shows_whether_a_commit_happened(committed: int, done: Counts) -> None:
    """Whatever its call said, or did not say."""
    assert Progress(done) == Progress(TWO, THREE).committing(7).resolved(committed)


def test_without_a_commit_what_was_open_is_dropped() -> None:
    """It is read again, wherever the committed offset is."""
    assert Progress(TWO) == Progress(TWO, THREE).resolved(99)
