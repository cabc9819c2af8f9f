"""
Services that break one rule on purpose, by the names of `tests.chaos`: some seed must find each of them out.

Each replaces a part of the product for the time of a block.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from app.driver.owners import Owners
from app.executor.lane.states import Closed, Opened
from app.kafka import settings, writers
from app.kafka.acknowledged import AcknowledgedWriter
from app.kafka.consumer import TaskConsumer
from app.kafka.writers import TransactionalWriter
from app.model import NO_EPOCH, CommittedOffset, OffsetRange, Partition
from tests.simulation import scheduler
from tests.simulation.librdkafka import FakeProducer, world

EARLIER_OWNER_SECONDS = 0.8
"""Longer than a commit interval, so that an earlier owner commits after the offset was read."""


@contextmanager
def _replaced(owner: Any, name: str, new: Any) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


def _kept_producer() -> AbstractContextManager[None]:
    """Wrong: a producer is kept although its commit may have been sent twice."""
    return _replaced(writers, "SENT_AGAIN_SECONDS", math.inf)


def _random_ids() -> AbstractContextManager[None]:
    """Wrong: every producer has a transactional id of its own, so none is ever fenced."""
    fencing = settings.fencing

    def unfenced(group: str, seconds: float, partition: Partition) -> settings.Settings:
        return fencing(f"{group}-{world().next_producer()}", seconds, partition)

    return _replaced(settings, "fencing", unfenced)


def _offset_first() -> AbstractContextManager[None]:
    """Wrong: the committed offset is read before the earlier owner is fenced."""
    task = sys.modules["app.executor.task"].Task
    committed, open_lane = task._committed, Closed.open

    def open_late(self: Closed, clients: Any, offsets: Any) -> Opened:
        early = offsets.load([self.ledger.partition], stable=True)
        scheduler.running().sleep(EARLIER_OWNER_SECONDS)
        opened = open_lane(self, clients, offsets)
        opened.early = early  # type: ignore[attr-defined]
        return opened

    def stale(
        self: Any, partitions: Iterable[Partition], *, stable: bool = True
    ) -> Mapping[Partition, CommittedOffset]:
        found = dict(committed(self, partitions, stable=stable))
        for partition in partitions:
            if (early := getattr(self._lanes[partition].state, "early", None)) is not None:
                found.pop(partition, None)
                found |= early
        return found

    @contextmanager
    def both() -> Iterator[None]:
        with _replaced(Closed, "open", open_late), _replaced(task, "_committed", stale):
            yield

    return both()


def _offset_outside() -> AbstractContextManager[None]:
    """Wrong: the offset is committed after the transaction of its lines."""

    def commit(self: Any, offset: int, metadata: str) -> None:
        self._begin()
        with self._translated("committing"):
            self._deliver_all()
            self._client.commit_transaction(5.0)
        self._open = False
        self._began_at = offset
        self._offsets.reset(self._partition, offset, metadata)

    return _replaced(TransactionalWriter, "commit", commit)


def _offset_early() -> AbstractContextManager[None]:
    """Wrong: at least once, the offset is saved before the records are acknowledged."""
    return _replaced(AcknowledgedWriter, "_acknowledge", lambda *_: None)


def _rivals_ignored() -> AbstractContextManager[None]:
    """Wrong: a driver does not look whether a later run works for its group."""
    return _replaced(Owners, "observe", lambda *_: None)


def _dead_letters_outside() -> AbstractContextManager[None]:
    """Wrong: dead letters are written outside the transaction."""

    def send(self: Any, dead_letters: Any) -> None:
        producer = FakeProducer({"bootstrap.servers": self._client._config["bootstrap.servers"]})
        target = self._sender.targets.dead_letter
        for each in dead_letters:
            producer.produce(target.topic, each.value, each.key, target.number, headers=each.headers)
        producer.flush(5.0)

    return _replaced(TransactionalWriter, "send_dead_letters", send)


def _rewound_again() -> AbstractContextManager[None]:
    """Wrong: a retried task goes back again if it finds the planned offset, although an attempt came to it again."""
    states = sys.modules["app.executor.lane.states"]
    first_position = states._first_position

    def whatever_was_counted(planned: OffsetRange, committed: CommittedOffset | None, *, stored: bool) -> Any:
        return first_position(replace(planned, counted=None), committed, stored=stored)

    return _replaced(states, "_first_position", whatever_was_counted)


def _cuts_ignored() -> AbstractContextManager[None]:
    """Wrong: a log that was cut and has grown again is read on from the group's offset."""
    start_reading = TaskConsumer.start

    def start(self: Any, partition: Partition, offset: int, _epoch: int = NO_EPOCH) -> None:
        start_reading(self, partition, offset)

    @contextmanager
    def both() -> Iterator[None]:
        forgotten = ("app.driver.discover", "app.driver.starting_offsets")
        with ExitStack() as stack:
            stack.enter_context(_replaced(TaskConsumer, "start", start))
            for module in forgotten:
                stack.enter_context(_replaced(sys.modules[module], "cut_of", lambda *_: None))
            yield

    return both()


def _short_audit() -> AbstractContextManager[None]:
    """Wrong: an audit does not read the last records of the output."""
    audit = sys.modules["app.operate.audit"]
    stable_ends = audit.stable_ends

    def earlier(*args: Any) -> Any:
        return {each: end._replace(offset=max(0, end.offset - 2)) for each, end in stable_ends(*args).items()}

    return _replaced(audit, "stable_ends", earlier)


ARMS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "honest": nullcontext,
    "kept-producer": _kept_producer,
    "random-ids": _random_ids,
    "offset-first": _offset_first,
    "offset-outside": _offset_outside,
    "offset-early": _offset_early,
    "rivals-ignored": _rivals_ignored,
    "dead-letters-outside": _dead_letters_outside,
    "rewound-again": _rewound_again,
    "cuts-ignored": _cuts_ignored,
    "short-audit": _short_audit,
}
