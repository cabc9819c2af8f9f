"""
Writes uniquely numbered lines at a steady rate, some bad, some in transactions of which some are aborted.

A stream is a sequence of numbers: 2p is written to source partition p plainly, 2p + 1 in transactions. A record's key
says what it is: `stream:number`. What became of each is recorded: `ok`, `aborted`, or `unknown`.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos.history import Recorder
from tests.independent import line

TICK_SECONDS = 0.1
TRANSACTIONAL_SHARE = 8
"""One line in so many is written in a transaction."""
ABORTED = 0.4
CONTROL_SECONDS = 10.0


def key(stream: int, number: int) -> bytes:
    """Name a record."""
    return b"%d:%d" % (stream, number)


def bad_line(stream: int, number: int) -> bytes:
    """Make a line that must be rejected: no marker, too few fields, or a date that does not exist."""
    match number % 3:
        case 0:
            return b"bad %d/%d" % (stream, number)
        case 1:
            return b"<<<!>>>bad<<<!>>>,<<<!>>>%d/%d<<<!>>>" % (stream, number)
    return line(number, stream).replace(b"20171112", b"20170231")


class Load:
    """
    Writes until it is stopped; a context manager.

    Args:
        bootstrap: where.
        topic: the source topic.
        partitions: how many it has; may be raised while it runs.
        per_second: lines, over all partitions.
        bad: which fraction must be rejected; may be changed while it runs.
        recorder: where it says what it wrote.
        dice: what decides.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        per_second: int,
        recorder: Recorder,
        dice: random.Random,
        bad: float = 0.02,
    ) -> None:
        """Remember what to do."""
        self.partitions, self.bad = partitions, bad
        self._fates: Counter[str] = Counter()
        self._bootstrap, self._topic, self._per_second = bootstrap, topic, per_second
        self._recorder = recorder
        self._next: Counter[int] = Counter()
        self._dice = random.Random(dice.random()), random.Random(dice.random())
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._plainly, self._transactionally)]

    def __enter__(self) -> Self:
        """Start."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def lines(self) -> int:
        """How many it has written for good."""
        return self._fates["ok"]

    def stop(self) -> None:
        """Stop, and see the fate of everything."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _plainly(self) -> None:
        settings: dict[str, Any] = {"enable.idempotence": True, "linger.ms": 20, "message.timeout.ms": 300_000}
        producer = Producer(self._common | settings)
        began = time.monotonic()
        while not self._stop.wait(TICK_SECONDS):
            due = (time.monotonic() - began) * self._per_second - self._next.total()
            for partition in range(self.partitions):
                batch = self._batch(2 * partition, max(1, int(due / self.partitions)), self._dice[0])
                self._produce(producer, partition, batch, batch.note)
            producer.poll(0)
        producer.flush(300)

    def _transactionally(self) -> None:
        producer: Producer | None = None
        per_second = self._per_second / TRANSACTIONAL_SHARE
        while not self._stop.wait(2 * TICK_SECONDS):
            partition = self._dice[1].randrange(self.partitions)
            batch = self._batch(2 * partition + 1, max(1, int(per_second * 2 * TICK_SECONDS)), self._dice[1])
            aborted = self._dice[1].random() < ABORTED
            try:
                producer = producer or self._transactional_producer()
                producer.begin_transaction()
                self._produce(producer, partition, batch)
                producer.flush(CONTROL_SECONDS)
                if aborted:
                    producer.abort_transaction(CONTROL_SECONDS)
                else:
                    producer.commit_transaction(CONTROL_SECONDS)
                batch.record("aborted" if aborted else "ok")
            except KafkaException:  # the next producer aborts what is open; a commit may have happened before that
                batch.record("aborted" if aborted else "unknown")
                producer = None

    @property
    def _common(self) -> dict[str, Any]:
        own = {"compression.type": "lz4", "log_level": 0, "reconnect.backoff.max.ms": 500}
        return {"bootstrap.servers": self._bootstrap, **own}

    def _transactional_producer(self) -> Producer:
        own = {"transactional.id": f"load/{self._topic}", "transaction.timeout.ms": 20_000}
        producer = Producer(self._common | own)
        producer.init_transactions(CONTROL_SECONDS)
        return producer

    def _batch(self, stream: int, count: int, dice: random.Random) -> Batch:
        first = self._next[stream]
        self._next[stream] += count
        bad = [number for number in range(first, first + count) if dice.random() < self.bad]
        return Batch(self._recorder, stream, first, count, bad, fates=self._fates)

    def _produce(
        self,
        producer: Producer,
        partition: int,
        batch: Batch,
        note: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        bad = set(batch.bad)
        for number in range(batch.first, batch.first + batch.count):
            value = bad_line(batch.stream, number) if number in bad else line(number, batch.stream)
            record = (self._topic, value, key(batch.stream, number), partition, note)
            while not _taken(producer, record):
                producer.list_topics(self._topic, CONTROL_SECONDS)


def _taken(producer: Producer, record: tuple[Any, ...]) -> bool:
    """Hand a record over; a partition that was just added may not be known yet."""
    try:
        producer.produce(*record)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
        return False
    return True


class Batch:
    """Lines that were written together; recorded when the fate of the last is known."""

    def __init__(
        self, recorder: Recorder, stream: int, first: int, count: int, bad: list[int], *, fates: Counter[str]
    ) -> None:
        """Nothing is known yet; `fates` counts lines by what became of them."""
        self.stream, self.first, self.count, self.bad = stream, first, count, bad
        self._recorder, self._fates = recorder, fates
        self._outcomes: list[str] = []

    def note(self, error: KafkaError | None, _message: Message) -> None:
        """Take a delivery report; they come in order."""
        self._outcomes.append("ok" if error is None else "unknown")
        if len(self._outcomes) == self.count:
            self.record("ok" if set(self._outcomes) == {"ok"} else "unknown")

    def record(self, outcome: str) -> None:
        """Say what became of all of them."""
        self._fates[outcome] += self.count
        told = {"stream": self.stream, "first": self.first, "count": self.count, "bad": self.bad}
        self._recorder.record("write", outcome=outcome, **told)


def fresh_name() -> str:
    """Make a name that no other run has."""
    return f"chaos-{uuid.uuid4().hex[:8]}"
