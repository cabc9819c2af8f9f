"""A request to stop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count

import pytest

from app.driver.stop import Stop


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Leave the handlers of the process as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_the_service_to_stop(number: signal.Signals) -> None:
    """Its name is the cause, and waits end at once; a second signal does not change the cause."""
    stop = Stop()
    stop.on_signals()
    assert not stop.requested
    assert not stop.wait(0)

    signal.raise_signal(number)
    stop.request("something else")

    assert stop.requested
    assert stop.wait(60)
    assert number.name == stop.cause


@pytest.mark.parametrize("moment", range(12))
def test_a_signal_may_interrupt_a_wait_at_any_point(moment: int) -> None:
    """A handler that needs a lock which the interrupted wait holds would wait for ever, a second signal's, too."""
    stop, calls = Stop(), count()
    stop.on_signals()

    def at_each_call(*_: object) -> None:
        if next(calls) == moment:
            signal.raise_signal(signal.SIGTERM)

    sys.setprofile(at_each_call)
    try:
        stop.wait(0)
    finally:
        sys.setprofile(None)

    assert stop.requested == (next(calls) > moment)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_hands_over_stops_at_the_second_signal(second: signal.Signals) -> None:
    """After the first SIGTERM it is leaving, but waits do not end."""
    stop = Stop()
    stop.on_signals()
    stop.handover_seconds = 600

    signal.raise_signal(signal.SIGTERM)

    assert "SIGTERM" == stop.leaving
    assert not stop.wait(0)
    signal.raise_signal(second)
    assert stop.requested
    assert second.name == stop.cause


def test_a_service_that_nobody_takes_over_from_stops_when_its_time_is_over() -> None:
    """The signal is the cause; Ctrl-C stops at once."""
    causes = []
    for number, seconds in ((signal.SIGTERM, 0.01), (signal.SIGINT, 600)):
        stop = Stop()
        stop.on_signals()
        stop.handover_seconds = seconds
        signal.raise_signal(number)
        assert stop.wait(60)
        causes.append(stop.cause)

    assert ["SIGTERM", "SIGINT"] == causes


def test_a_wait_for_a_result_shows_that_it_is_alive() -> None:
    """`meanwhile` is called until the result is there."""
    future: Future[str] = Future()
    beats: list[float] = []

    def beat() -> None:
        beats.append(1)
        if len(beats) == 2:
            future.set_result("up")

    assert "up" == Stop().result(future, beat)
    assert 2 == len(beats)
