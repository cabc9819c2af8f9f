"""
What a task says of its lanes' errors, when they happen: a receipt comes late, and never where a round is killed.

The lines go to the worker's stderr, which is the log of its executor; with a local master, that of the driver.
"""

from __future__ import annotations

import re

from app.errors import PartitionError
from app.events import PARTITION_TROUBLE, PARTITION_TROUBLE_OVER, REMIND_SECONDS
from app.model import Partition


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
        PARTITION_TROUBLE.log({"error": str(error), "offset": offset, **self._where})

    def over(self, offset: int) -> None:
        """Tell that the lane has committed again, if it was told that it could not."""
        if self._lasts:
            self._lasts = False
            PARTITION_TROUBLE_OVER.log({"offset": offset, **self._where})
