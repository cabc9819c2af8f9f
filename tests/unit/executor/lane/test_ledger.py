"""What a lane counts around a commit whose outcome may be unknown, and what an executor logs about its errors."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from app.errors import Transient
from app.events import REMIND_SECONDS
from app.executor.lane.ledger import Progress, Trouble
from app.model import Partition
from app.offsets.metadata import NOTHING, Counts

TWO, THREE, COMMIT = Counts(2, 2), Counts(3, 2, {"empty": 1}), Counts(committed=1)
ABORTED = Counts(aborted=1)
P = Partition("raw", 3)
WAITS, LOST = (
    Transient(P, "19 records were not acknowledged by clean-3"),
    Transient(P, "the password is wrong", 7, "fix"),
)


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


def test_an_error_is_told_once_a_minute() -> None:
    """The line has place, offset, cause and cure. If only a number in the text changes, the error is the same."""
    trouble = Trouble(P)

    with capture_logs() as logs:
        trouble.happened(LOST, 40, 100.0)
        trouble.happened(WAITS, 40, 101.0)
        trouble.happened(Transient(P, "20 records were not acknowledged by clean-3"), 40, 100.0 + REMIND_SECONDS)
        trouble.happened(WAITS, 50, 101.0 + REMIND_SECONDS)

    where = {"event": "partition_trouble", "log_level": "warning", "topic": "raw", "partition": 3}
    assert [(str(LOST), 40), (str(WAITS), 40), (str(WAITS), 50)] == [
        (entry["error"], entry["offset"]) for entry in logs
    ]
    assert where.items() <= logs[0].items()
    assert "raw-3@7: the password is wrong: fix" == logs[0]["error"]


def test_the_end_of_trouble_is_told_once() -> None:
    """Commits are not logged, except the first after a logged error."""
    trouble = Trouble(P)

    with capture_logs() as logs:
        trouble.over(10)
        trouble.happened(WAITS, 10, 100.0)
        trouble.over(20)
        trouble.over(30)

    assert ["partition_trouble", "partition_trouble_over"] == [each["event"] for each in logs]
    assert 20 == logs[1]["offset"]
