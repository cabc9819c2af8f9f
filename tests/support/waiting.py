"""Waiting for a condition, with the same patience everywhere, because a slow machine is not a fault of the product."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import psutil

T = TypeVar("T")
PATIENCE = 600.0
"""Seconds after which to give up. Less than pytest's own limit for a test."""
LOOK_SECONDS, REST, MAX_REST_SECONDS = 0.1, 4, 2.0
"""The pause between two looks in seconds, the factor that lengthens it if looks are slow, and its maximum."""


def until(condition: Callable[[], T], what: str = "it") -> T:
    """Wait until a condition returns a true value, and return that."""
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
    Wait for processes to end. Return those still alive after this many seconds.

    `psutil.wait_procs` does the same, but raises FileNotFoundError if a process ends while it looks.
    """
    alive, deadline = list(processes), time.monotonic() + seconds
    while (alive := [each for each in alive if _is_alive(each)]) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return alive


def end(processes: Iterable[psutil.Process]) -> None:
    """Kill those of our processes that are still alive; one may end by itself in this moment."""
    ending = list(processes)
    for process in ending:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    alive_after(ending)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def without(error: type[Exception], ask: Callable[[], T], what: str) -> T:
    """Retry as long as the call raises this error, and return the result."""
    answers: list[T] = []

    def answered() -> bool:
        with contextlib.suppress(error):
            answers.append(ask())
        return bool(answers)

    until(answered, what)
    return answers[0]


def freeze(process: psutil.Process) -> None:
    """Suspend a process by SIGSTOP, and wait until it does nothing more. Raises psutil.NoSuchProcess if it has ended."""
    process.send_signal(signal.SIGSTOP)
    # On a busy machine other threads may still respond long after one thread received the signal.
    while process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
        time.sleep(LOOK_SECONDS)
