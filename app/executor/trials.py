"""
Finds the records that kill or hang the parser. Runs in a separate process, which never runs the parser itself.

The parser runs in forks of this process, one batch at a time. If a fork dies or does not return in time, a record of
its current batch is to blame. Another fork repeats that batch in smaller ones, down to single records. A record that
ends a fork on its own becomes a dead letter. This process has no Kafka connections, so unlike a worker it can fork
safely and within milliseconds.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Never

import pyarrow as pa

from app.executor.parse import join, make_parser, parse, parser_error
from app.model import TaskConfig
from parsers.contract import Parsed, Parser

# The batch size, and the factor by which it shrinks at each attempt: three attempts find a single record.
PIECE = 512
DIVISOR = 32
# A batch that takes longer is repeated in smaller ones. That costs only time, so the limit may be short.
PIECE_SECONDS = 1.0
# A single record that takes longer hangs.
ALONE_SECONDS = 5.0
# A fork's first batch holds no record: a parser may set itself up at its first call. That failing blames no record:
# another fork tries the next one, which does not call the parser.
SET_UPS = (pa.array([None, b""], pa.binary()), pa.array([], pa.binary()))
SET_UP_SECONDS = 8.0
# When to report results, so that they can be committed: the driver ends a round that commits nothing for 15 s.
REPORT_SECONDS = 3.0

Start = Callable[[pa.BinaryArray, int, float], "Trial"]
"""Starts the trial of values, by so many at a time, in so many seconds."""


def serve(descriptor: int) -> None:
    """Parse the values that arrive on a connection until its other end is closed."""
    with Connection(descriptor) as connection:
        try:
            parser, set_ups = for_forks(connection.recv()), [*SET_UPS]
            while True:
                connection.send(parse_apart(parser, connection.recv(), set_ups=set_ups))
        except (EOFError, ConnectionError):  # the task has finished; a fork that fails must be told
            return


def for_forks(config: TaskConfig) -> Parser:
    """Return the parser, which each fork builds anew if it has started threads: a fork has none of them."""
    before = _threads()
    parser = make_parser(config)
    return parser if _threads() <= before else _BuiltAnew(config)


def _threads() -> int:
    return len([*Path("/proc/self/task").iterdir()])


class _BuiltAnew:
    """A parser that is built at its first call."""

    def __init__(self, config: TaskConfig) -> None:
        self._built = cache(partial(make_parser, config))

    def parse(self, lines: pa.BinaryArray) -> Parsed:
        return self._built().parse(lines)


def parse_apart(
    parser: Parser,
    values: pa.BinaryArray,
    clock: Callable[[], float] = time.monotonic,
    *,
    set_ups: list[pa.BinaryArray] | None = None,
) -> Parsed:
    """
    Return the results for these values, or for a prefix, whatever the parser does to its process.

    A fork's first batch is one of `set_ups`. One that fails, and is not needed, is removed.
    """
    until = clock() + REPORT_SECONDS
    parts: list[Parsed] = []
    for part in _outcomes(partial(Trial, parser, [*SET_UPS] if set_ups is None else set_ups), values, PIECE):
        parts.append(part)
        if clock() > until:
            break
    return join(parts)


def _outcomes(start: Start, values: pa.BinaryArray, size: int) -> Iterator[Parsed]:
    """Yield the results for the values, in order, in batches of `size` while nothing fails."""
    at = 0
    while at < len(values):
        for part in start(values.slice(at), size, PIECE_SECONDS):
            yield part
            at += part.records
        blamed = values.slice(at, size)
        at += len(blamed)
        if len(blamed) == 1:
            trial = start(blamed, 1, ALONE_SECONDS)
            yield next(iter([*trial]), None) or parser_error(trial.cause)
        elif len(blamed):
            yield from _outcomes(start, blamed, max(1, len(blamed) // DIVISOR))


@dataclass(eq=False)
class Trial:
    """Parses values in a fork, `size` at a time in `seconds`; iterates over the results until the fork ends."""

    parser: Parser
    set_ups: list[pa.BinaryArray]
    values: pa.BinaryArray
    size: int
    seconds: float
    cause: str = ""
    """How the fork ended."""

    def __iter__(self) -> Iterator[Parsed]:
        for set_up in [*self.set_ups]:
            results = self._results(set_up)
            if next(results, None) is not None:
                for result in results:
                    if set_up is self.set_ups[-1]:  # each before has failed
                        del self.set_ups[:-1]
                    yield result
                return

    def _results(self, set_up: pa.BinaryArray) -> Iterator[Parsed]:
        """Yield the result for what sets the parser up, and then those for the values."""
        outcomes, theirs = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            self._parse(set_up, theirs)
        theirs.close()
        ended = os.pidfd_open(pid)
        with outcomes, suppress(EOFError, OSError):
            try:
                # Processes that the parser has started may outlive the fork, and keep the pipe open.
                while outcomes in wait([outcomes, ended]):
                    yield outcomes.recv()
            finally:
                os.close(ended)
                with suppress(ProcessLookupError):  # it ended before it had a group
                    os.killpg(pid, signal.SIGKILL)
                self.cause = self._in_words(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    def _parse(self, set_up: pa.BinaryArray, outcomes: Connection[Parsed, Parsed]) -> Never:
        """Run in the fork. The kernel's alarm ends it even if a C call hangs while it holds the GIL."""
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, SET_UP_SECONDS)
            outcomes.send(parse(self.parser, set_up))
            for begin in range(0, len(self.values), self.size):
                signal.setitimer(signal.ITIMER_REAL, self.seconds)
                parsed = parse(self.parser, self.values.slice(begin, self.size))
                signal.setitimer(signal.ITIMER_REAL, 0)
                outcomes.send(parsed)
        finally:
            os._exit(1)  # skip any exit handler that the parser has left behind

    def _in_words(self, code: int) -> str:
        if code == -signal.SIGALRM:
            return f"the parser did not return within {self.seconds:.0f} s"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return f"the parser process {how}"
