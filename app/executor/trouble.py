"""
What a task says of its lanes' errors, when they happen: a receipt comes late, and never where a round is killed.

The lines go to the worker's stderr, which is the log of its executor; with a local master, that of the driver.
"""

from __future__ import annotations

import re

import structlog

from app.errors import PartitionError
from app.model import Partition

log = structlog.get_logger()

REMIND_SECONDS = 60.0


class Trouble:
    """The errors of one lane: each kind is told when it is new, and once a minute while it comes again."""

    def __init__(self, partition: Partition) -> None:
        self._where = {"topic": partition.topic, "partition": partition.number}
        self._quiet_until: dict[str, float] = {}
        """Until when an error of a kind is not told again; numbers in its text do not make another kind."""
        self._lasts = False

    def happened(self, error: PartitionError, offset: int, now: float) -> None:
        """Tell an error, and the offset from which the lane will go on."""
        kind = re.sub(r"\d+", "", error.cause)
        if now < self._quiet_until.get(kind, now):
            return
        self._quiet_until[kind] = now + REMIND_SECONDS
        self._lasts = True
        log.warning("partition in trouble; the others go on", error=str(error), offset=offset, **self._where)

    def over(self, offset: int) -> None:
        """Tell that the lane has committed again, if it was told that it could not."""
        if self._lasts:
            self._lasts = False
            log.info("partition out of trouble", offset=offset, **self._where)
