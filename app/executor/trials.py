"""
Finds the records that kill or hang the parser. Runs in a separate process, which never runs the parser itself.

The parser runs in forks of this process, one batch at a time. If a fork dies or does not return in time, a record of
its current batch is to blame. Another fork repeats that batch in smaller ones, down to single records. A record that
ends a fork on its own becomes a dead letter. This process has no threads and no Kafka connections, so unlike a worker
it can fork safely and within milliseconds.
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

# The batch size, and the factor by which it shrinks at each attempt: three attempts find a single record.
PIECE = 512
DIVISOR = 32
# A batch that takes longer is repeated in smaller ones. That costs only time, so the limit may be short.
PIECE_SECONDS = 1.0
# A single record that takes longer hangs.
ALONE_SECONDS = 5.0
# A fork's first batch holds no record: a parser may set itself up at its first call. That failing blames no record.
SET_UP = pa.array([None, b""], pa.binary())
SET_UP_SECONDS = 8.0
# When to report results, so that they can be committed: the driver ends a round that commits nothing for 15 s.
REPORT_SECONDS = 3.0


def serve(descriptor: int) -> None:
    """Parse the values that arrive on a connection until its other end is closed."""
    with Connection(descriptor) as connection:
        try:
            parser = make_parser(connection.recv())
            while True:
                connection.send(parse_apart(parser, connection.recv()))
        except (EOFError, OSError):  # the task has finished
            return


def parse_apart(parser: Parser, values: pa.BinaryArray, clock: Callable[[], float] = time.monotonic) -> Parsed:
    """Return the results for these values, or for a prefix, whatever the parser does to its process."""
    until = clock() + REPORT_SECONDS
    parts: list[Parsed] = []
    for part in _outcomes(parser, values, PIECE):
        parts.append(part)
        if clock() > until:
            break
    return join(parts)


def _outcomes(parser: Parser, values: pa.BinaryArray, size: int) -> Iterator[Parsed]:
    """Yield the results for the values, in order, in batches of `size` while nothing fails."""
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
    """Parses values in a fork, `size` at a time in `seconds`; iterates over the results until the fork ends."""

    def __init__(self, parser: Parser, values: pa.BinaryArray, size: int, seconds: float) -> None:
        self._parser = parser
        self._values = values
        self._size = size
        self._seconds = seconds
        self.cause = ""
        """How the fork ended."""

    def __iter__(self) -> Iterator[Parsed]:
        for set_up in (SET_UP, SET_UP.slice(0, 0)):
            results = self._results(set_up)
            if next(results, None) is not None:
                yield from results
                return

    def _results(self, set_up: pa.BinaryArray) -> Iterator[Parsed]:
        """Yield the result for what sets the parser up, and then those for the values."""
        outcomes, theirs = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            self._parse(set_up, theirs)
        theirs.close()
        with outcomes:
            try:
                while True:
                    yield outcomes.recv()
            except (EOFError, OSError):
                self.cause = self._in_words(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            except GeneratorExit:  # the caller wants no more
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise

    def _parse(self, set_up: pa.BinaryArray, outcomes: Connection[Parsed, Parsed]) -> Never:
        """Run in the fork. The kernel's alarm ends it even if a C call hangs while it holds the GIL."""
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, SET_UP_SECONDS)
            outcomes.send(parse(self._parser, set_up))
            for begin in range(0, len(self._values), self._size):
                signal.setitimer(signal.ITIMER_REAL, self._seconds)
                parsed = parse(self._parser, self._values.slice(begin, self._size))
                signal.setitimer(signal.ITIMER_REAL, 0)
                outcomes.send(parsed)
        finally:
            os._exit(1)  # skip any exit handler that the parser has left behind

    def _in_words(self, code: int) -> str:
        if code == -signal.SIGALRM:
            return f"the parser did not return within {self._seconds:.0f} s"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return f"the parser process {how}"
