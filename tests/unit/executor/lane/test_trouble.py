"""What an executor logs about a lane's errors."""

from __future__ import annotations

from structlog.testing import capture_logs

from app.errors import Transient
from app.events import REMIND_SECONDS
from app.executor.lane.trouble import Trouble
from app.model import Partition

P = Partition("raw", 3)
WAITS, LOST = (
    Transient(P, "19 records were not acknowledged by clean-3"),
    Transient(P, "the password is wrong", 7, "fix"),
)


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
