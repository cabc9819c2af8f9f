"""
Writes uniquely numbered lines at a steady rate. Some are bad, some are in transactions, and some of these abort.

Stream 2p goes to source partition p without transactions, stream 2p + 1 in transactions. The key of a record is
`stream:number`. The history gets the outcome of each batch: `ok`, `aborted`, or `unknown`.
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
TRANSACTIONAL_EVERY = 8
"""One line in eight is written in a transaction."""
ABORTED = 0.4
"""The fraction of transactions that abort."""
CONTROL_SECONDS = 10.0


def key(stream: int, number: int) -> bytes:
    """Return the key of a record."""
    return b"%d:%d" % (stream, number)


def bad_line(stream: int, number: int) -> bytes:
    """Return a line that must be rejected: no marker, too few fields, or a date that does not exist."""
    match number % 3:
        case 0:
            return b"bad %d/%d" % (stream, number)
        case 1:
            return b"<<<!>>>bad<<<!>>>,<<<!>>>%d/%d<<<!>>>" % (stream, number)
    return line(number, stream).replace(b"20171112", b"20170231")


class Load:
    """
    Writes in two threads until it is stopped; a context manager.

    Args:
        bootstrap: the brokers.
        topic: the source topic.
        partitions: how many the topic has; may grow while it runs.
        per_second: lines per second, over all partitions.
        bad: the fraction of lines that must be rejected; may change while it runs.
        recorder: gets what was written, with its outcome.
        rng: decides which lines are bad and which transactions abort.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        per_second: int,
        recorder: Recorder,
        rng: random.Random,
        bad: float = 0.02,
    ) -> None:
        """Prepare; nothing is written yet."""
        self.partitions, self.bad = partitions, bad
        self._outcomes: Counter[str] = Counter()
        self._bootstrap, self._topic, self._per_second = bootstrap, topic, per_second
        self._recorder = recorder
        self._next: Counter[int] = Counter()
        self._rng = random.Random(rng.random()), random.Random(rng.random())
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._plainly, self._transactionally)]

    def __enter__(self) -> Self:
        """Start writing."""
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
        """How many lines were acknowledged and not aborted."""
        return self._outcomes["ok"]

    def stop(self) -> None:
        """Stop writing, and wait for the outcome of every line."""
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
                batch = self._batch(2 * partition, max(1, int(due / self.partitions)), self._rng[0])
                self._produce(producer, partition, batch, batch.on_delivery)
            producer.poll(0)
        producer.flush(300)

    def _transactionally(self) -> None:
        producer: Producer | None = None
        per_second = self._per_second / TRANSACTIONAL_EVERY
        while not self._stop.wait(2 * TICK_SECONDS):
            partition = self._rng[1].randrange(self.partitions)
            batch = self._batch(2 * partition + 1, max(1, int(per_second * 2 * TICK_SECONDS)), self._rng[1])
            aborted = self._rng[1].random() < ABORTED
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
            except KafkaException:  # the next producer aborts an open transaction; but a commit may have succeeded
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

    def _batch(self, stream: int, count: int, rng: random.Random) -> Batch:
        first = self._next[stream]
        self._next[stream] += count
        bad = [number for number in range(first, first + count) if rng.random() < self.bad]
        return Batch(self._recorder, stream, first, count, bad, outcomes=self._outcomes)

    def _produce(
        self,
        producer: Producer,
        partition: int,
        batch: Batch,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        bad = set(batch.bad)
        for number in range(batch.first, batch.first + batch.count):
            value = bad_line(batch.stream, number) if number in bad else line(number, batch.stream)
            record = (self._topic, value, key(batch.stream, number), partition, on_delivery)
            while not _accepted(producer, record):
                producer.list_topics(self._topic, CONTROL_SECONDS)


def _accepted(producer: Producer, record: tuple[Any, ...]) -> bool:
    """Return whether the producer accepted a record; it may not know a partition yet that was just added."""
    try:
        producer.produce(*record)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
        return False
    return True


class Batch:
    """Lines that were written together; recorded when the outcome of the last one is known."""

    def __init__(
        self, recorder: Recorder, stream: int, first: int, count: int, bad: list[int], *, outcomes: Counter[str]
    ) -> None:
        """No outcome is known yet; `outcomes` is the counter of lines by outcome to add to."""
        self.stream, self.first, self.count, self.bad = stream, first, count, bad
        self._recorder, self._totals = recorder, outcomes
        self._reports: list[str] = []

    def on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        """Take a delivery report; reports come in the order of the lines."""
        self._reports.append("ok" if error is None else "unknown")
        if len(self._reports) == self.count:
            self.record("ok" if set(self._reports) == {"ok"} else "unknown")

    def record(self, outcome: str) -> None:
        """Record the outcome of all lines."""
        self._totals[outcome] += self.count
        fields = {"stream": self.stream, "first": self.first, "count": self.count, "bad": self.bad}
        self._recorder.record("write", outcome=outcome, **fields)


def fresh_name() -> str:
    """Return a name that no other run uses."""
    return f"chaos-{uuid.uuid4().hex[:8]}"
