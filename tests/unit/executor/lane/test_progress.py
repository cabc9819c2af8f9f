"""The counts of a lane around a commit whose outcome may be unknown."""

from __future__ import annotations

import pytest

from app.executor.lane.progress import Progress
from app.offsets.metadata import NOTHING, Counts

TWO, THREE, COMMIT = Counts(2, 2), Counts(3, 2, {"empty": 1}), Counts(committed=1)
ABORTED = Counts(aborted=1)


def test_what_is_taken_is_open_until_it_is_committed() -> None:
    taken = Progress().taken(TWO).taken(THREE)

    assert Progress(NOTHING, TWO + THREE) == taken
    assert Progress(TWO + THREE + COMMIT) == taken.committing(5).committed()


@pytest.mark.parametrize(
    ("committed", "after"),
    [
        (6, Progress(TWO, ABORTED)),
        (7, Progress(TWO + THREE + COMMIT)),
        (8, Progress(TWO + THREE + COMMIT)),
    ],
)
def test_the_committed_offset_shows_whether_a_commit_happened(committed: int, after: Progress) -> None:
    """Whatever its call returned or raised."""
    assert after == Progress(TWO, THREE).committing(7).resolved(committed)


def test_without_a_commit_what_was_open_is_dropped() -> None:
    """It is read again, wherever the committed offset is."""
    assert Progress(TWO, ABORTED) == Progress(TWO, THREE).resolved(99)


def test_an_abort_is_counted_by_the_next_commit() -> None:
    """It counts once, however often the partition was opened in between. An empty one does not count."""
    opened = Progress(TWO, THREE).resolved(0).resolved(0)

    assert Progress(TWO) == Progress(TWO).resolved(0)
    assert Progress(TWO, ABORTED) == opened
    assert Progress(TWO, ABORTED + ABORTED) == opened.taken(THREE).resolved(0)
    assert Progress(TWO + ABORTED + THREE + COMMIT) == opened.taken(THREE).committing(9).committed()
