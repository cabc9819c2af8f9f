"""Waits for Kafka while it does not answer: with back-off, said once, over when it is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from app.driver.stop import Stop
from app.errors import Unreachable

T = TypeVar("T")
FIRST_WAIT = 0.5
LONGEST_WAIT = 5.0

log = structlog.get_logger()


class Stopped(Exception):  # not an error: the way out of a wait
    """Somebody asked us to stop while we waited."""


def retry_until_available(call: Callable[[], T], stop: Stop) -> T:
    """
    Call until Kafka answers.

    Raises:
        Stopped: if a stop is requested before it does.
    """
    began, wait = time.monotonic(), FIRST_WAIT
    said = False
    while not stop.requested:
        try:
            answer = call()
        except Unreachable as error:
            if not said:
                log.warning("waiting for Kafka", reason=str(error))
                said = True
            stop.wait(wait)
            wait = min(wait * 2, LONGEST_WAIT)
        else:
            if said:
                log.info("Kafka is back", waited_seconds=round(time.monotonic() - began, 1))
            return answer
    raise Stopped
