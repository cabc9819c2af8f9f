"""
Keeps brokers from forgetting the offsets of partitions that no task works on: idle, blocked, or paused.

Brokers forget an offset of a group without members that nobody has committed for `offsets.retention.minutes` (7 days),
partition by partition. A partition without an offset would be read from its beginning at the next start, and its lines
would come twice. A task renews the offsets of its partitions at its end, so a round is no longer than the driver waits.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection

from app.driver.clients import Clients
from app.errors import NotUsable, PartitionError, Unreachable
from app.model import Partition

RENEW_SECONDS = 6 * 3_600.0
"""Where brokers keep offsets for a day or longer, or do not tell us for how long."""
SHARE = 4
"""How often within the time that brokers keep an offset."""


class Renewal:
    """
    Renews offsets, again and again.

    Args:
        clients: Kafka, as the driver sees it.
        clock: a monotonic clock in seconds.
        transactional: whether a task that was thought dead must be fenced first, because it could commit meanwhile.
    """

    def __init__(self, clients: Clients, clock: Callable[[], float], *, transactional: bool) -> None:
        self._clients = clients
        self._clock = clock
        self._transactional = transactional
        self._renewed_at = -math.inf
        self.every = RENEW_SECONDS
        """How many seconds may pass between two commits of an offset."""

    def learn(self) -> None:
        """
        Ask for how long brokers keep offsets.

        Raises:
            Unreachable, NotUsable: Kafka does not answer, or cannot serve us.
        """
        retention = self._clients.group.offset_retention()
        if retention is not None:
            self.every = min(RENEW_SECONDS, retention / SHARE)

    def renew(self, partitions: Collection[Partition], also: Callable[[], object] = lambda: None) -> None:
        """Renew the offsets of these partitions if it is time, and do what else is to be done then."""
        if self._clock() - self._renewed_at < self.every:
            return
        with contextlib.suppress(NotUsable, Unreachable, PartitionError):  # it is tried again at the next look
            also()
            self._commit_again(partitions)
            self._renewed_at = self._clock()

    def _commit_again(self, partitions: Collection[Partition]) -> None:
        if not partitions:
            return
        safe = self._clients.fence.fence(partitions) if self._transactional else partitions
        for partition, committed in self._clients.offsets.load(safe, stable=True).items():
            if not committed.corrupt:
                self._clients.offsets.save(partition, committed.offset, committed.metadata)
        if len(safe) < len(partitions):
            msg = "not every partition could be fenced"
            raise Unreachable(msg)
