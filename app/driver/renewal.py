"""
Renews the offsets of partitions that no task renews (idle, blocked or paused ones, and those whose tasks fail).

Brokers delete the offsets of a group without members partition by partition, `offsets.retention.minutes` (7 days) after
the last commit. The next start would read such a partition from its beginning and duplicate its lines. A task renews
the offsets of its partitions when it ends, so a round never outlasts the renewal interval. Where it could not, or never
ran, the driver does so between two rounds, or while it waits for executors.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable

from app.driver.clients import Clients
from app.errors import NotUsable, PartitionError, Unreachable
from app.model import Partition
from app.offsets.contract import is_transactional

RENEW_SECONDS = 6 * 3_600.0
"""The interval if brokers keep offsets for a day or longer, or do not report how long."""
SHARE = 4
"""How many times to renew within the retention time."""


class Renewal:
    """Renews offsets periodically. If `transactional`, it fences first: a task believed dead could still commit."""

    def __init__(self, clients: Clients, clock: Callable[[], float], *, transactional: bool) -> None:
        self._clients = clients
        self._clock = clock
        self._transactional = transactional
        self._renewed_at: dict[Partition, float] = {}
        """When the offset of each partition was renewed, by this run's tasks or by its driver."""
        self._pause_renewed_at = -math.inf
        self.every = RENEW_SECONDS
        """The longest time between two commits of an offset, in seconds."""

    def learn(self) -> None:
        """Ask how long brokers keep offsets."""
        retention = self._clients.group.offset_retention()
        if retention is not None:
            self.every = min(RENEW_SECONDS, retention / SHARE)

    def renewed(self, partitions: Iterable[Partition]) -> None:
        self._renewed_at |= dict.fromkeys(partitions, self._clock())

    def renew(
        self, partitions: Collection[Partition], at_rest: Callable[[], Collection[Partition]], *, paused: bool = False
    ) -> None:
        """Renew what is due: of all these partitions, those that are `at_rest`, and the mark of a pause."""
        self._renewed_at = {each: at for each, at in self._renewed_at.items() if each in partitions}
        due = {each for each in partitions if self._is_due(self._renewed_at.get(each, -math.inf))}
        with contextlib.suppress(NotUsable, Unreachable, PartitionError):  # retried at the next look
            if due and (ours := sorted(due.intersection(at_rest()))):
                self.renewed(self._commit_again(ours))
            if paused and self._is_due(self._pause_renewed_at):
                self._clients.pauses.renew()
                self._pause_renewed_at = self._clock()

    def _is_due(self, renewed_at: float) -> bool:
        return self._clock() - renewed_at >= self.every

    def _commit_again(self, partitions: Collection[Partition]) -> Collection[Partition]:
        """Return the partitions that could be reached."""
        store = self._clients.offsets
        if self._transactional:
            assert is_transactional(store)  # the configuration allows no other
            return self._clients.fence.renew(partitions, store)
        for partition, committed in store.load(partitions, stable=True).items():
            if not committed.corrupt:
                store.save(partition, committed.offset, committed.metadata)
        return partitions
