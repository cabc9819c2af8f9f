"""Runs the demo's verification in a process of its own, at the lowest priority: the service is not to wait for it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from app.demo.lines import Recipe
from app.demo.verify import Verdict, Verification, VerificationFailed

REPORT_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Topics:
    """Where the verified service reads and writes."""

    source: str
    sink: str
    dead_letters: str


class BackgroundVerification:
    """A verification that reads while the service runs; `latest()` says how far it is, `finish()` ends it."""

    def __init__(self, bootstrap: str, recipe: Recipe, topics: Topics) -> None:
        """Start the process."""
        context = multiprocessing.get_context("spawn")  # a fork would inherit librdkafka's locks without its threads
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_verify, args=(theirs, bootstrap, recipe, topics), daemon=True)
        self._process.start()
        theirs.close()
        self._latest: Verdict | None = None
        self.done = False

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process, whatever it is at."""
        self._process.kill()
        self._process.join()

    def latest(self, seconds: float = 0) -> Verdict | None:
        """
        Return the newest verdict, or None if there is none yet; wait up to so many seconds for it.

        Raises:
            VerificationFailed: if the process has ended without its last verdict.
        """
        try:
            while not self.done and self._ours.poll(seconds):
                self._latest, seconds = self._ours.recv(), 0
        except EOFError:
            self._process.join()
            if self._process.exitcode:
                message = "The verification's process ended before its last verdict."
                raise VerificationFailed(message) from None
            self.done = True
        return self._latest

    def finish(self) -> None:
        """Let it read to the end, now that the service has ended; `done` says when `latest()` is the last verdict."""
        self._ours.send("finish")


def _verify(pipe: Connection, bootstrap: str, recipe: Recipe, topics: Topics) -> None:
    """Verify until we are told to finish; send a verdict now and then, and the last one at the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which then ends this process
    os.nice(19)
    with Verification(
        bootstrap, recipe, source=topics.source, sink=topics.sink, dead_letters=topics.dead_letters
    ) as verification:
        verification.expect()
        sent, told = 0.0, False
        while verification.poll() or not told:  # told to finish, it goes on while something comes
            told = told or (pipe.poll() and bool(pipe.recv()))
            if time.monotonic() - sent > REPORT_SECONDS:
                pipe.send(verification.verdict())
                sent = time.monotonic()
        pipe.send(verification.finish())
