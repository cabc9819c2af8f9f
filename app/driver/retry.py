"""Calls Kafka until it answers, with a back-off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.driver.stop import Stop
from app.driver.tracker import StatusTracker
from app.errors import Unreachable

T = TypeVar("T")
FIRST_WAIT = 0.5
MAX_WAIT = 5.0


class Stopped(Exception):  # not an error: the way out of a wait
    """Somebody asked us to stop while we waited."""


def retry_until_available(call: Callable[[], T], stop: Stop, tracker: StatusTracker) -> T:
    """
    Return what the call returns as soon as Kafka answers.

    Raises:
        Stopped: a stop was requested before that.
    """
    wait = FIRST_WAIT
    while not stop.requested:
        try:
            answer = call()
        except Unreachable as error:
            tracker.kafka_is_away(error)
            stop.wait(wait)
            wait = min(wait * 2, MAX_WAIT)
        else:
            tracker.kafka_is_back()
            return answer
    raise Stopped
