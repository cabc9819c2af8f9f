"""Retries Kafka calls with a back-off until Kafka responds; refusals count only if they persist."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.driver.service_tracker import ServiceTracker
from app.driver.stop import Stop, Stopped
from app.errors import NotAllowed, Unreachable

T = TypeVar("T")
FIRST_WAIT = 0.5
MAX_WAIT = 5.0
# Kafka may refuse us for seconds while brokers restart one by one or credentials change.
REFUSALS_IN_A_ROW = 3
REFUSED_SECONDS = 8.0


class Refusals:
    """Tracks consecutive refusals by Kafka."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._refused_at: list[float] = []

    def are_final(self, error: NotAllowed | Unreachable) -> bool:
        """Record an error; return whether refusals have persisted, so an operator must act."""
        if not isinstance(error, NotAllowed):
            self.over()
            return False
        self._refused_at.append(self._clock())
        lasted = self._refused_at[-1] - self._refused_at[0]
        return len(self._refused_at) >= REFUSALS_IN_A_ROW and lasted >= REFUSED_SECONDS

    def over(self) -> None:
        self._refused_at.clear()


def retry_until_available(call: Callable[[], T], stop: Stop, tracker: ServiceTracker, clock: Callable[[], float]) -> T:
    """Return the call's result once Kafka responds. Raises Stopped, or NotAllowed if Kafka keeps refusing us."""
    wait, refusals = FIRST_WAIT, Refusals(clock)
    while not stop.requested:
        try:
            answer = call()
        except (NotAllowed, Unreachable) as error:
            if refusals.are_final(error):
                raise
            tracker.kafka_is_away(error)
            tracker.leaving(stop.leaving)
            stop.wait(wait)
            wait = min(wait * 2, MAX_WAIT)
        else:
            tracker.kafka_is_back()
            return answer
    raise Stopped
