"""
Services that break one rule on purpose, by the names of `tests.chaos`: some seed must find each of them out.

Each replaces a part of the product for the time of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from app.driver import discover, starting_offsets
from app.driver.life import Sight
from app.driver.newcomers import Newcomers
from app.driver.owners import Owners
from app.driver.pause import PauseMark
from app.driver.takeover import Takeover
from app.executor import task
from app.executor.lane import states
from app.executor.lane.ledger import Ledger
from app.executor.lane.states import Closed, Opened
from app.headers import TRANSACTION, as_text
from app.kafka import settings, writers
from app.kafka.acknowledged import AcknowledgedWriter
from app.kafka.consumer import TaskConsumer
from app.kafka.hanging import HangingTransactions, Own
from app.kafka.writers import TransactionalWriter
from app.model import NO_EPOCH, CommittedOffset, OffsetRange, Partition, Topic, transactional_id
from app.offsets import migrate
from app.offsets.migrate import Move
from app.operate import audit
from app.operate.dead_letters import Letter
from app.records import Record
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
    committed, open_lane = task.Task._committed, Closed.open

    def open_late(self: Closed, clients: Any, offsets: Any) -> Opened:
        early = offsets.load([self.ledger.partition], stable=True)
        scheduler.running().sleep(EARLIER_OWNER_SECONDS)
        opened = open_lane(self, clients, offsets)
        opened.early = early  # type: ignore[attr-defined]
        return opened

    def stale(
        self: Any, partitions: Sequence[Partition], *, stable: bool = True
    ) -> Mapping[Partition, CommittedOffset]:
        found = dict(committed(self, partitions, stable=stable))
        for partition in partitions:
            if (early := getattr(self._lanes[partition].state, "early", None)) is not None:
                found.pop(partition, None)
                found |= early
        return found

    @contextmanager
    def both() -> Iterator[None]:
        with _replaced(Closed, "open", open_late), _replaced(task.Task, "_committed", stale):
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


def _takes_back() -> AbstractContextManager[None]:
    """Wrong: a lane looks for a later owner only if it has committed in this task."""
    refuse = states.refuse_if_taken

    def if_it_has_committed(ledger: Ledger, committed: CommittedOffset | None) -> None:
        if ledger.stored:
            refuse(ledger, committed)

    @contextmanager
    def both() -> Iterator[None]:
        with (
            _replaced(states, "refuse_if_taken", if_it_has_committed),
            _replaced(task, "refuse_if_taken", if_it_has_committed),
        ):
            yield

    return both()


def _dead_waited_for() -> AbstractContextManager[None]:
    """Wrong: what a later generation has taken is never taken back, although that has died."""
    return _replaced(
        Takeover, "taken", property(lambda self: {p: o for p, o in self._others.items() if self._is_later(o)})
    )


def _leaves_early() -> AbstractContextManager[None]:
    """Wrong: a service ends when a later generation has taken some of its partitions."""
    return _replaced(Takeover, "has_all", lambda self, _: bool(self.taken))


def _leaderless_forgotten() -> AbstractContextManager[None]:
    """Wrong: a partition without a leader does not exist for whoever looks for the first time."""
    record, look_for_copies = Newcomers.record, Newcomers._look_for_copies

    def record_led(self: Newcomers, committed: Mapping[Partition, Any], topics: Mapping[str, Topic]) -> None:
        led = {each: at for each, at in committed.items() if each.number not in topics[each.topic].leaderless}
        record(self, led, topics)

    def look_at_first(self: Newcomers, partitions: Collection[Partition]) -> Mapping[Partition, Any]:
        return look_for_copies(self, partitions if self._known is None else ())

    @contextmanager
    def both() -> Iterator[None]:
        with (
            _replaced(Newcomers, "record", record_led),
            _replaced(Newcomers, "_look_for_copies", look_at_first),
        ):
            yield

    return both()


def _restored_bare() -> AbstractContextManager[None]:
    """Wrong: a restored offset does not tell that the group had begun with its topic."""
    move_back = migrate._move_back

    def bare(*what: Any) -> Move:
        move = move_back(*what)
        return replace(move, source=replace(move.source, metadata=""))

    return _replaced(migrate, "_move_back", bare)


def _outage_is_silence() -> AbstractContextManager[None]:
    """Wrong: what cannot be seen in an outage counts as the silence of other services."""
    return _replaced(Sight, "lose", lambda _: None)


def _works_beside() -> AbstractContextManager[None]:
    """Wrong: a service that should yield to another one does not look for it."""
    return _replaced(Owners, "look_before_work", lambda *_, **__: None)


def _pause_with_dead_letters() -> AbstractContextManager[None]:
    """Wrong: the mark of a pause is read at the dead-letter topic only."""
    return _replaced(PauseMark, "_load", lambda self: self._store.load(self._others[:1], stable=False))


def _replays_by_time() -> AbstractContextManager[None]:
    """Wrong: a replay tells dead letters apart by their timestamps, too."""
    return _replaced(
        Letter, "topic_id", property(lambda self: f"{self.errors.get('topic.id')}@{self.record.timestamp}")
    )


def _headers_trusted() -> AbstractContextManager[None]:
    """Wrong: a header that a source record bears is taken for ours."""
    own = HangingTransactions._own

    def trusting(self: HangingTransactions, record: Record, source: Partition) -> Own | None:
        owner, _, text = as_text(record.headers).get(TRANSACTION, "").rpartition("@")
        if owner == transactional_id(self.group, source):
            return Own(record.offset, int(text), marked=True)
        return own(self, record, source)

    return _replaced(HangingTransactions, "_own", trusting)


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
        with (
            _replaced(TaskConsumer, "start", start),
            _replaced(discover, "cut_of", lambda *_: None),
            _replaced(starting_offsets, "cut_of", lambda *_: None),
        ):
            yield

    return both()


def _short_audit() -> AbstractContextManager[None]:
    """Wrong: an audit does not read the last records of the output."""
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
    "takes-back": _takes_back,
    "dead-waited-for": _dead_waited_for,
    "leaves-early": _leaves_early,
    "leaderless-forgotten": _leaderless_forgotten,
    "restored-bare": _restored_bare,
    "outage-is-silence": _outage_is_silence,
    "works-beside": _works_beside,
    "pause-with-dead-letters": _pause_with_dead_letters,
    "replays-by-time": _replays_by_time,
    "headers-trusted": _headers_trusted,
    "dead-letters-outside": _dead_letters_outside,
    "rewound-again": _rewound_again,
    "cuts-ignored": _cuts_ignored,
    "short-audit": _short_audit,
}
