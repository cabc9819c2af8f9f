"""Where the time of a task goes."""

from __future__ import annotations

from app.executor.stopwatch import Stopwatch
from app.model import Attempt
from app.offsets.times import Histogram, TaskReport, TaskTimes, place_of
from tests.fakes import FakeClock


def test_each_second_is_spent_on_one_thing() -> None:
    """The time before the start does not count."""
    clock = FakeClock()
    stopwatch = Stopwatch(Attempt(2, 1), clock)
    clock.now += 100
    stopwatch.start()
    spent = ((1, stopwatch.waited), (2, stopwatch.parsed), (4, stopwatch.produced), (8, stopwatch.kept_up))
    for seconds, take in spent:
        clock.now += seconds
        take()
    stopwatch.committed(0.5)

    parsed, produced, committed = (Histogram(seconds, (*(0,) * place_of(seconds), 1)) for seconds in (2.0, 4.0, 0.5))
    assert TaskReport(Attempt(2, 1), TaskTimes(1, 8, parsed, produced, committed)) == stopwatch.report()
    assert 15 == stopwatch.report().times.seconds
