"""What an executor logs about a lane's errors."""

from __future__ import annotations

from structlog.testing import capture_logs

from app.errors import Transient
from app.executor.trouble import REMIND_SECONDS, Trouble
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

    event = "partition in trouble; the others go on"
    where = {"event": event, "log_level": "warning", "topic": "raw", "partition": 3}
    assert [
        {"error": str(LOST), "offset": 40},
        {"error": str(WAITS), "offset": 40},
        {"error": str(WAITS), "offset": 50},
    ] == [{key: value for key, value in entry.items() if key not in where} for entry in logs]
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

    assert ["partition in trouble; the others go on", "partition out of trouble"] == [each["event"] for each in logs]
    assert 20 == logs[1]["offset"]
