"""Runs the demo's verification in a separate process at the lowest priority, so that it does not slow the service."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Self

from app.demo.verify import NOTHING_SEEN, Verification, VerificationFailed, VerificationResult

REPORT_SECONDS = 0.25
LOWEST = 19


class BackgroundVerification:
    """
    A verification that reads while the service runs. `latest()` returns its progress, `finish()` ends it.

    `start` is called in the other process, so it must be picklable.

    Args:
        niceness: of that process.
    """

    def __init__(self, start: Callable[[], Verification], niceness: int = LOWEST) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit librdkafka's locks without its threads
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_verify, args=(theirs, start, niceness), daemon=True)
        self._process.start()
        theirs.close()
        self._latest = NOTHING_SEEN
        self.done = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def latest(self, seconds: float = 0) -> VerificationResult:
        """Return the newest result. Raises VerificationFailed if the process died."""
        try:
            while not self.done and self._ours.poll(seconds):
                self._latest, seconds = self._ours.recv(), 0
        except EOFError:
            self._process.join()
            if self._process.exitcode:
                raise VerificationFailed("The verification process ended before its final verdict.") from None
            self.done = True
        return self._latest

    def finish(self) -> None:
        """Let it read to the end, after the service has ended. Once `done` is true, `latest()` is the final result."""
        self._ours.send("finish")


def _verify(pipe: Connection, start: Callable[[], Verification], niceness: int) -> None:
    """Verify until told to finish; send verdicts regularly, and the final one at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the demo, which then ends this process
    os.nice(niceness)
    with start() as verification:
        sent, told = 0.0, False
        while verification.poll() or not told:  # after the request to finish, continue while records arrive
            told = told or (pipe.poll() and bool(pipe.recv()))
            if time.monotonic() - sent > REPORT_SECONDS:
                pipe.send(verification.result())
                sent = time.monotonic()
        pipe.send(verification.finish())
