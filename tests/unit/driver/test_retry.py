"""Waiting for Kafka: how long, how often, and when a refusal is final."""

from __future__ import annotations

import pytest

from app.driver.retry import REFUSED_SECONDS, Refusals, retry_until_available
from app.driver.stop import Stopped
from app.driver.tracker import StatusTracker
from app.errors import NotAllowed, Unreachable
from app.status.snapshot import Phase
from tests.fakes.simulation import SimulatedStop, SimulatedTime

LONG = 3_600.0


@pytest.mark.parametrize(
    ("refused_at", "final"),
    [
        ([0, REFUSED_SECONDS], False),  # only twice
        ([0, 1, REFUSED_SECONDS - 0.1], False),  # too short a time
        ([0, 1, REFUSED_SECONDS], True),
        ([0, 1, 2, REFUSED_SECONDS], True),
        ([0, None, 1, 2, REFUSED_SECONDS], False),  # an answer in between
    ],
)
def test_refusals_are_final_when_they_last(refused_at: list[float | None], final: bool) -> None:
    """It takes three in a row over eight seconds, no matter when the service began."""
    for began in (0.0, 100.0):
        time = SimulatedTime()
        refusals, result = Refusals(time), None
        time.pass_by(began)
        for seconds in refused_at:
            if seconds is None:
                refusals.over()
                continue
            time.now = began + seconds
            result = refusals.are_final(NotAllowed("wrong password"))

        assert final == result


class Kafka:
    """Responds at a given time and records the requests."""

    def __init__(self, time: SimulatedTime, back_at: float) -> None:
        self.asked_at: list[float] = []
        self._time = time
        self._back_at = back_at

    def __call__(self) -> str:
        self.asked_at.append(self._time.now)
        if self._time.now < self._back_at:
            raise Unreachable("connection refused")
        return "an answer"


def test_the_pauses_grow_to_five_seconds() -> None:
    """A short outage ends soon, and a long one causes few requests."""
    time = SimulatedTime()
    kafka, tracker = Kafka(time, back_at=16.0), StatusTracker("g", (), time.runtime)

    answer = retry_until_available(kafka, SimulatedStop(time, LONG), tracker, time)

    assert "an answer" == answer
    assert [0, 0.5, 1.5, 3.5, 7.5, 12.5, 17.5] == kafka.asked_at


def test_an_outage_begins_and_ends() -> None:
    """The status shows the outage exactly as long as it lasts."""
    time = SimulatedTime()
    tracker = StatusTracker("g", (), time.runtime)

    with pytest.raises(Stopped):
        retry_until_available(Kafka(time, back_at=LONG), SimulatedStop(time, 10.0), tracker, time)
    assert tracker.snapshot.outage is not None

    retry_until_available(Kafka(time, back_at=0.0), SimulatedStop(time, LONG), tracker, time)
    assert tracker.snapshot.outage is None


def test_a_signal_is_shown_during_an_outage() -> None:
    """Until its time for a successor is over, nothing else says that it was heard."""
    time = SimulatedTime()
    stop, tracker = SimulatedStop(time, 10.0), StatusTracker("g", (), time.runtime)
    stop.leaving = "SIGTERM"

    with pytest.raises(Stopped):
        retry_until_available(Kafka(time, back_at=LONG), stop, tracker, time)

    assert tracker.snapshot.phase is Phase.LEAVING
