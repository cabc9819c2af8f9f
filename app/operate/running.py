"""Checks that the service is stopped before offsets or transactions change: its next commit would overwrite them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from app.config import Config
from app.driver.clients import Clients
from app.errors import PartitionError, PartlySet, ServiceRuns, Unreachable, WinnowError
from app.facts import OpenTransaction
from app.model import NOBODY, CommittedOffset, Guarantee, Owner, Partition, latest, partitions_of
from app.offsets.contract import OffsetStore
from app.offsets.metadata import OffsetMetadata
from app.operate.reading import Offsets

CURE = "stop it, and try again"
# Brokers abort transactions at their timeout, so an open one began less than two timeouts ago. But our clock may be
# ahead, and markers may wait for a leader. Kafka's whole log of transactions may have gigabytes.
TIMEOUTS = 10


class WatchedOffsets:
    """
    The committed offsets of the group, which only a working service moves, in the configured store and these others.

    An idle service is seen too: each of its tasks stores its times with one offset every second.
    """

    def __init__(self, config: Config, clients: Clients, *others: OffsetStore) -> None:
        topics = clients.topics.source_topics(config.source.topics, config.source.topics_pattern, ())
        self._partitions = partitions_of(topics.values())
        self._stores = [each for each in (clients.offsets, clients.copies, *others) if each is not None]
        self._known = self._load()

    def moved(self) -> tuple[Partition, CommittedOffset | None] | None:
        """Return a partition that was committed since the last look, with its offset now; None if all stand still."""
        before, self._known = self._known, self._load()
        main = self._known[0]
        for was, now in zip(before, self._known, strict=True):
            for partition in self._partitions:
                at = now.get(partition)
                # A paused service moves no offset, but it corrects the copies.
                is_copied = now is not main and _offset(at) == _offset(main.get(partition))
                if at != was.get(partition) and not is_copied:
                    return partition, at
        return None

    @property
    def owner(self) -> Owner:
        """The latest run that committed; NOBODY if no offset names one."""
        return latest([NOBODY, *(OffsetMetadata.of(each).owner for store in self._known for each in store.values())])

    def _load(self) -> list[Offsets]:
        return [store.load(self._partitions, stable=False) for store in self._stores]


def _offset(at: CommittedOffset | None) -> int | None:
    return None if at is None else at.offset


class StoppedService:
    """A service that must be stopped while an operator changes its offsets or transactions."""

    def __init__(self, config: Config, clients: Clients, sleep: Callable[[float], object] = time.sleep) -> None:
        self._config = config
        self._clients = clients
        self._sleep = sleep
        self._seconds = clients.timings.signs_of_life(config.commit_interval)

    def refuse_running(self, *others: OffsetStore) -> None:
        """
        Watch all partitions for a moment, without disturbing anything, in these stores besides the configured one.

        Raises ServiceRuns if an offset is committed, ForeignMember if another consumer is a member of the group.
        """
        self._clients.group.refuse_foreign_members()
        commits = WatchedOffsets(self._config, self._clients, *others)
        self._sleep(self._seconds)
        if (moved := commits.moved()) is not None:
            partition, now = moved
            raise ServiceRuns(f"{_who(now)} is running: it committed {partition} during the check", CURE)

    def fence(self, partitions: Collection[Partition], otherwise: str) -> None:
        """
        Abort the transactions that a crash left open, which could move an offset.

        Raises Unreachable if a partition cannot be fenced; `otherwise` says what follows.
        """
        if missed := sorted(set(partitions).difference(self._clients.fence.fence(partitions))):
            others = f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
            cause = f"the transactional id of {missed[0]}{others} could not be fenced, so {otherwise}"
            raise Unreachable(cause, "try again when Kafka is healthy")

    def prepare(self, target: OffsetStore, partitions: Collection[Partition], *others: OffsetStore) -> None:
        """Refuse a running service, make room for placeholders, and fence what a crash left open."""
        self.refuse_running(target, *others)
        if (placeholders := self._clients.placeholders_for(target)) is not None:
            for refusal in placeholders.make_room(partitions).values():
                raise refusal
        if self._config.delivery_guarantee is Guarantee.EXACTLY_ONCE:
            self.fence(partitions, "no offset was changed")

    @contextmanager
    def changing(
        self, target: OffsetStore, partly: Callable[[int, str], PartlySet]
    ) -> Iterator[dict[Partition, CommittedOffset]]:
        """
        Let the caller change the target's offsets, and note them; then look whether a service overwrites one.

        After an error that comes when some may have been set, raise what `partly` returns for how many were, and why.
        """
        written: dict[Partition, CommittedOffset] = {}
        try:
            yield written
            self._refuse_overwritten(target, written)
        except (WinnowError, KeyboardInterrupt) as error:
            if not written and not isinstance(error, PartitionError | KeyboardInterrupt):
                raise
            raise partly(len(written), str(error) or "it was interrupted") from error

    def _refuse_overwritten(self, target: OffsetStore, written: dict[Partition, CommittedOffset]) -> None:
        """Read the new offsets again: a running service that nothing else revealed overwrites them."""
        if not written:
            return
        self._sleep(self._seconds)
        now = target.load(written, stable=False)
        for partition, set_to in written.items():
            if (found := now.get(partition)) != set_to:
                cause = f"{_who(found)} is running: {partition} was set to {set_to} but now has {found or 'nothing'}"
                raise ServiceRuns(cause, "stop it, and set again what it has overwritten")


def open_transactions(config: Config, since: Callable[[int], list[OpenTransaction]]) -> list[OpenTransaction]:
    """Return the open transactions, in order; `since` finds those that changed after a time in milliseconds."""
    return since(round((time.time() - TIMEOUTS * config.transaction_timeout) * 1000))


def abort(found: Iterable[OpenTransaction], config: Config, clients: Clients) -> None:
    """Abort the open transactions of a dead service. Raises ServiceRuns if it is running; then nothing is changed."""
    service = StoppedService(config, clients)
    service.refuse_running()
    service.fence([each.source for each in found], "not all transactions were aborted")


def _who(committed: CommittedOffset | None) -> str:
    owner = OffsetMetadata.of(committed).owner
    return "the service" if owner == NOBODY else str(owner)
