"""
One place that decides how Winnow speaks: readable on a terminal, JSON lines otherwise, always on stderr.

Driver, executors and Spark itself (`app/spark/log4j2.json`) write lines of one shape: `timestamp`, `level` and `event`,
then `group`, `round`, `task`, `topic` and `partition` where they are known, then what else there is to say.
"""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict

from app.secrets import without_secrets


def _without_secrets(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Hide what the URLs in a line may hide; errors of other systems' clients repeat them."""
    return {key: without_secrets(value) if isinstance(value, str) else value for key, value in line.items()}


def on_terminal() -> bool:
    """Return whether a person reads the log while it is written."""
    return sys.stderr.isatty()


def configure(level: str = "info", **context: object) -> None:
    """
    Set up structlog for this process: called by the command line, and by a worker for each task.

    Args:
        level: what is logged, at least.
        context: what each line is to hold, from whichever thread.
    """
    terminal = on_terminal()

    def with_context(_logger: object, _method: str, line: EventDict) -> EventDict:
        return {**context, **line}

    structlog.configure(
        processors=[
            with_context,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not terminal),
            structlog.processors.format_exc_info,
            _without_secrets,
            structlog.dev.ConsoleRenderer(colors=True) if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
