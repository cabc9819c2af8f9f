"""
How a task calls the parser: directly, or in a separate process if a record may have ended earlier workers.

A record can kill a worker (a crash in a C library, `os._exit`) or hang it until its watchdog or the driver ends it. The
next worker would read the same record. So once workers have died without progress, the parser runs in a separate
process, and `app.executor.trials` finds the record. That costs some time for each chunk, and nothing otherwise.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Pipe
from typing import Self

import pyarrow as pa

from app.events import PARSER_ISOLATED
from app.executor.parse import NOTHING, parse
from app.model import Assignment, TaskConfig
from app.watchdog import Watchdog
from parsers.contract import Parse, Parsed, Parser

# A single worker can die of anything. After two, the parser is the suspect.
DEATHS = 2
ALIVE_SECONDS = 0.5
# More than the trials of one chunk can take: they report after 3 s and one more record.
PATIENCE_SECONDS = 60.0
PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from app.executor.trials import serve; serve(int(sys.argv[1]))"


def is_isolated(assignment: Assignment) -> bool:
    """Return whether workers have died over the same work, which makes the parser a suspect."""
    return assignment.isolate or assignment.attempt.number >= DEATHS


@contextmanager
def parsing(parser: Parser, assignment: Assignment, watchdog: Watchdog) -> Iterator[Parse]:
    if not is_isolated(assignment):
        yield partial(parse, parser)
        return
    PARSER_ISOLATED.log()
    with IsolatedParser(assignment.config, watchdog.feed) as isolated:
        isolated.parse(NOTHING.values)  # its start, slow on a busy machine, must leave time for records
        yield isolated.parse


class IsolatedParser:
    """
    A parser in a separate process, as a context manager.

    Args:
        alive: called again and again while the process works, to feed a watchdog.
    """

    def __init__(self, config: TaskConfig, alive: Callable[[], object] = lambda: None) -> None:
        self._config = config
        self._alive = alive

    def __enter__(self) -> Self:
        self._connection, theirs = Pipe()
        command = [sys.executable, "-c", PROGRAM, str(theirs.fileno()), *sys.path]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self._connection.send(self._config)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def parse(self, values: pa.BinaryArray) -> Parsed:
        """
        Return the results for these values, or for a prefix of them.

        Raises:
            RuntimeError: the process has exited or does not respond.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        try:
            self._connection.send(values)
            while not self._connection.poll(ALIVE_SECONDS):
                self._alive()
                if time.monotonic() > until:
                    msg = f"the parser process has not responded for {PATIENCE_SECONDS:.0f} s"
                    raise RuntimeError(msg)
            parsed: Parsed = self._connection.recv()
        except (EOFError, OSError) as error:
            msg = "the parser process exited; see its stderr"
            raise RuntimeError(msg) from error
        return parsed
