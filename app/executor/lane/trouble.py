"""
Logs the errors of a task's lanes as they happen: receipts come late, or never if the round is killed.

The worker's stderr ends up in the log of its executor, or of the driver with a local master.
"""

from __future__ import annotations

import re

from app.errors import PartitionError
from app.events import REMIND_SECONDS, Event
from app.model import Partition


class Trouble:
    """The errors of one lane: each kind is logged when it is new, and then at most once a minute."""

    def __init__(self, partition: Partition) -> None:
        self._where = partition.as_json()
        self._quiet_until: dict[str, float] = {}
        """When each kind of error may be logged again. Texts that differ only in numbers are the same kind."""
        self._lasts = False

    def happened(self, error: PartitionError, offset: int, now: float) -> None:
        """Log an error, and the offset at which the lane will resume."""
        kind = re.sub(r"\d+", "", error.cause)
        if now < self._quiet_until.get(kind, now):
            return
        self._quiet_until[kind] = now + REMIND_SECONDS
        self._lasts = True
        Event.PARTITION_TROUBLE.log(error=str(error), offset=offset, **self._where)

    def over(self, offset: int) -> None:
        """Log that the lane has committed again, if its trouble was logged."""
        if self._lasts:
            self._lasts = False
            Event.PARTITION_TROUBLE_OVER.log(offset=offset, **self._where)
