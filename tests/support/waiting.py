"""Waiting for a condition: with the same patience everywhere, because a slow machine is no fault of the product."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 240.0
"""Seconds after which what is waited for will never come; less than pytest's own limit for a test."""
LOOK_SECONDS, REST, MAX_REST_SECONDS = 0.1, 4, 2.0
"""The pause between two looks, in seconds; where a look takes long, so many times what it takes; and no more than that."""


def until(condition: Callable[[], T], what: str = "it") -> T:
    """Wait for a condition, and return its first value that is true."""
    deadline = time.monotonic() + PATIENCE
    while True:
        began = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        assert now < deadline, f"waited {PATIENCE:.0f} s for {what}"
        time.sleep(min(max(LOOK_SECONDS, REST * (now - began)), MAX_REST_SECONDS))


def without(error: type[Exception], ask: Callable[[], T], what: str) -> T:
    """Ask again as long as that raises this error, and return the answer."""
    answers: list[T] = []

    def answered() -> bool:
        with contextlib.suppress(error):
            answers.append(ask())
        return bool(answers)

    until(answered, what)
    return answers[0]
