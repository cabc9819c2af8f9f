"""Waiting for a condition: with the same patience everywhere, because a slow machine is no fault of the product."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import psutil

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


def alive_after(processes: Iterable[psutil.Process], seconds: float = PATIENCE) -> list[psutil.Process]:
    """
    Wait for the end of processes, and return those that do not end in so many seconds.

    `psutil.wait_procs` does the same, and raises FileNotFoundError where one ends in the moment in which it looks.
    """
    alive, deadline = list(processes), time.monotonic() + seconds
    while (alive := [each for each in alive if _is_alive(each)]) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return alive


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def without(error: type[Exception], ask: Callable[[], T], what: str) -> T:
    """Ask again as long as that raises this error, and return the answer."""
    answers: list[T] = []

    def answered() -> bool:
        with contextlib.suppress(error):
            answers.append(ask())
        return bool(answers)

    until(answered, what)
    return answers[0]
