"""
One place that decides how Winnow speaks: readable on a terminal, JSON lines otherwise, always on stderr.

Driver, executors and Spark itself (`app/spark/log4j2.json`) write lines of one shape: `timestamp`, `level`, `event`
and `message`, then `group`, `round`, `task`, `topic` and `partition` where they are known, then the event's own fields.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys

import structlog
from structlog.typing import EventDict

from app.secrets import without_secrets

FIRST = ("timestamp", "level", "event", "message", "group", "round", "task", "topic", "partition")


def _without_secrets(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Hide what the URLs in a line may hide; errors of other systems' clients repeat them."""
    return {key: without_secrets(value) if isinstance(value, str) else value for key, value in line.items()}


class LogLines(structlog.WriteLogger):
    """Writes lines where it can: a full disk, or a pipe that nobody reads, must not end the service."""

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError):
            super().msg(message)

    debug = info = warning = error = critical = msg


@atexit.register
def _let_go_of_what_nobody_took() -> None:
    """Empty the buffers of stdout and stderr: if Python cannot do that at the end, it turns any exit code into 120."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # one that was closed at the start is None
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def on_terminal() -> bool:
    return sys.stderr.isatty()


def configure(level: str = "info", **context: object) -> None:
    """Set up structlog for this process: the command line, or a worker's task. Each line holds `context`."""
    terminal = on_terminal()

    def in_order(_logger: object, _method: str, line: EventDict) -> EventDict:
        line = {**context, **line}
        return {**{name: line[name] for name in FIRST if name in line}, **line}

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not terminal),
            structlog.processors.format_exc_info,
            in_order,
            _without_secrets,
            structlog.dev.ConsoleRenderer(event_key="message") if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        # One write a line: workers of an executor share stderr, and an unbuffered `print` writes the line end apart.
        # The stderr of the moment: while a progress bar is shown, that is one which writes above the bar.
        logger_factory=lambda *_: LogLines(sys.stderr),
        cache_logger_on_first_use=False,
    )
