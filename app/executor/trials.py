"""
Finds the records that kill or hang the parser. Runs in a process of its own, in which the parser itself never runs.

The parser runs in forks of this process, piece by piece. Where a fork dies, or does not return in time, a record of the
piece that it was at is to blame. Another fork goes through that piece in smaller ones, down to single records. A record
that ends a fork of its own, too, becomes a dead letter. This process has no threads and no connections to Kafka, so it
can be forked safely and within milliseconds, which a worker cannot.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe
from typing import Never

import pyarrow as pa

from app.executor.parse import join, make_parser, parse, parser_error
from parsers.contract import Parsed, Parser

# How many records are parsed at once, and by how many pieces less at each attempt: three attempts find a single record.
PIECE = 512
DIVISOR = 32
# A piece that takes longer is taken in smaller ones. That loses nothing but time, so it may be short.
PIECE_SECONDS = 1.0
# A record that takes longer alone hangs.
ALONE_SECONDS = 5.0
# What was found by then is reported, so that it can be committed. The driver ends a round that commits nothing for
# 15 s.
REPORT_SECONDS = 3.0


def serve(descriptor: int) -> None:
    """Cleanse what comes through a connection, until its other end is closed."""
    with Connection(descriptor) as connection:
        try:
            parser = make_parser(connection.recv())
            while True:
                connection.send(parse_apart(parser, connection.recv()))
        except (EOFError, OSError):  # the task has ended
            return


def parse_apart(parser: Parser, values: pa.BinaryArray, clock: Callable[[], float] = time.monotonic) -> Parsed:
    """Return what becomes of these values, or of the first of them, whatever the parser does to its process."""
    until = clock() + REPORT_SECONDS
    parts: list[Parsed] = []
    for part in _outcomes(parser, values, PIECE):
        parts.append(part)
        if clock() > until:
            break
    return join(parts)


def _outcomes(parser: Parser, values: pa.BinaryArray, size: int) -> Iterator[Parsed]:
    """Yield what becomes of the values, in order: of so many at once, where nothing goes wrong."""
    at = 0
    while at < len(values):
        for part in Trial(parser, values.slice(at), size, PIECE_SECONDS):
            yield part
            at += part.records
        blamed = values.slice(at, size)
        at += len(blamed)
        if len(blamed) == 1:
            yield _alone(parser, blamed)
        elif len(blamed):
            yield from _outcomes(parser, blamed, max(1, len(blamed) // DIVISOR))


def _alone(parser: Parser, value: pa.BinaryArray) -> Parsed:
    trial = Trial(parser, value, 1, ALONE_SECONDS)
    return next(iter([*trial]), None) or parser_error(trial.cause)


class Trial:
    """
    Parses values in a fork of this process; iterates over the outcomes of the pieces that it came through.

    Args:
        parser: what is tried.
        values: what it is tried with.
        size: how many values it gets at once.
        seconds: how long it may take for them.
    """

    def __init__(self, parser: Parser, values: pa.BinaryArray, size: int, seconds: float) -> None:
        self._parser = parser
        self._values = values
        self._size = size
        self._seconds = seconds
        self.cause = ""
        """How the fork ended, in words."""

    def __iter__(self) -> Iterator[Parsed]:
        outcomes, theirs = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            self._parse(theirs)
        theirs.close()
        with outcomes:
            try:
                while True:
                    yield outcomes.recv()
            except (EOFError, OSError):
                self.cause = self._in_words(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            except GeneratorExit:  # nobody wants the rest
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise

    def _parse(self, outcomes: Connection[Parsed, Parsed]) -> Never:
        """Runs in the fork. The kernel's alarm ends it even where a C call hangs that holds the interpreter's lock."""
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            for begin in range(0, len(self._values), self._size):
                signal.setitimer(signal.ITIMER_REAL, self._seconds)
                parsed = parse(self._parser, self._values.slice(begin, self._size))
                signal.setitimer(signal.ITIMER_REAL, 0)
                outcomes.send(parsed)
        finally:
            os._exit(1)  # not a word to whatever the parser has left behind

    def _in_words(self, code: int) -> str:
        if code == -signal.SIGALRM:
            return f"the parser did not return within {self._seconds:.0f} s"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return f"the parser process {how}"
