"""A request to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator

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
    """Its name is the cause, and a wait ends at once; a second signal does not change the cause."""
    stop = Stop()
    stop.on_signals()
    assert not stop.requested
    assert not stop.wait(0)

    signal.raise_signal(number)
    stop.request("something else")

    assert stop.requested
    assert stop.wait(60)
    assert number.name == stop.cause
