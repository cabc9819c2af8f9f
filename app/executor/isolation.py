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
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any

import pyarrow as pa

from app.errors import ParserLost
from app.events import Event
from app.executor.parse import NOTHING, parse
from app.model import Assignment, TaskConfig
from app.watchdog import Watchdog
from parsers.contract import Parse, Parsed, Parser

# A single worker can die of anything. After two, the parser is the suspect.
DEATHS = 2
ALIVE_SECONDS = 0.5
# More than the trials of one chunk can take: they report after 3 s and one more record.
PATIENCE_SECONDS = 60.0
READ_STDERR = "see its stderr; if that says nothing, it was killed, perhaps for want of memory: free some and try again"
# Ctrl-C reaches this process, too. The end of its connection stops it.
PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); sys.path[:] = sys.argv[2:]; "
    "from app.executor.trials import serve; serve(int(sys.argv[1]))"
)


def is_isolated(assignment: Assignment) -> bool:
    """Return whether workers have died over the same work, which makes the parser a suspect."""
    return assignment.isolate or assignment.attempt.number >= DEATHS


@contextmanager
def parsing(parser: Parser, assignment: Assignment, watchdog: Watchdog) -> Iterator[Parse]:
    if not is_isolated(assignment):
        yield partial(parse, parser)
        return
    Event.PARSER_ISOLATED.log()
    with isolated(assignment.config, watchdog.feed) as parse_apart:
        parse_apart(NOTHING.values)  # its start, slow on a busy machine, must leave time for records
        yield parse_apart


@contextmanager
def isolated(config: TaskConfig, alive: Callable[[], object] = lambda: None) -> Iterator[Parse]:
    """
    Yield what parses in a separate process, perhaps only a prefix of the values.

    It raises ParserLost if the process has exited or does not respond. While the process works, `alive` is called again
    and again, to feed a watchdog.
    """
    ours, theirs = Pipe()
    command = [sys.executable, "-c", PROGRAM, str(theirs.fileno()), *sys.path]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL) as process, ours:
        try:
            theirs.close()
            with suppress(OSError):  # the first batch tells that it has exited
                ours.send(config)
            yield partial(_parse_apart, ours, alive)
        finally:
            process.kill()


def _parse_apart(process: Connection[Any, Any], alive: Callable[[], object], values: pa.BinaryArray) -> Parsed:
    until = time.monotonic() + PATIENCE_SECONDS
    try:
        process.send(values)
        while not process.poll(ALIVE_SECONDS):
            alive()
            if time.monotonic() > until:
                cause = f"the parser process has not responded for {PATIENCE_SECONDS:.0f} s"
                raise ParserLost(cause, "the machine is overloaded, or the parser takes that long in __init__")
        parsed: Parsed = process.recv()
    except (EOFError, OSError) as error:
        raise ParserLost("the parser process exited", READ_STDERR) from error
    return parsed
