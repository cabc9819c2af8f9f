"""
Writes uniquely numbered lines at a steady rate. Some are bad, some are in transactions, and some of these abort.

Stream 2p goes to source partition p without transactions, stream 2p + 1 in transactions. The history gets the outcome
of each batch: `ok`, `aborted`, or `unknown`.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos.history import Recorder
from tests.chaos.lines import LARGE_BYTES, Odd, Source, bad_line, forged, key
from tests.independent import line

TICK_SECONDS = 0.1
TRANSACTIONAL_EVERY = 8
"""One line in eight is written in a transaction."""
ABORTED = 0.4
"""The fraction of transactions that abort."""
CONTROL_SECONDS = 10.0
FAILED = KafkaException, SystemError
"""How a producer fails; the second if its fatal error is pending while it calls us back (see docs/librdkafka.md)."""


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
        self.odd: Odd | None = None
        """The odd lines to write now; only outside transactions, so that each is acknowledged."""
        self.spoiled: frozenset[int] = frozenset()
        """The partitions that get bad lines only."""
        self.group = ""
        """The group of the service whose headers the records are to forge; empty for none."""
        self.pause = False
        """Whether to write nothing now."""
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
        producer = self._idempotent_producer()
        began = time.monotonic()
        while not self._stop.wait(TICK_SECONDS):
            due = (time.monotonic() - began) * self._per_second - self._next.total()
            try:
                for partition in range(0 if self.pause else self.partitions):
                    self._write_batch(producer, partition, max(1, int(due / self.partitions)))
                producer.poll(0)
            except FAILED:  # idempotence counts on the log that it has seen; one that was truncated is another
                _drop(producer)
                producer = self._idempotent_producer()
        producer.flush(300)

    def _write_batch(self, producer: Producer, partition: int, count: int) -> None:
        batch = self._batch(2 * partition, count, self._rng[0], self.odd)
        try:
            self._produce(producer, partition, batch, batch.on_delivery)
        except FAILED:
            batch.forget()
            raise

    def _transactionally(self) -> None:
        producer: Producer | None = None
        per_second = self._per_second / TRANSACTIONAL_EVERY
        while not self._stop.wait(2 * TICK_SECONDS):
            if self.pause:
                continue
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
            except FAILED:  # the next producer aborts an open transaction; but a commit may have succeeded
                batch.record("aborted" if aborted else "unknown")
                producer = None

    @property
    def _common(self) -> dict[str, Any]:
        own: dict[str, Any] = {"compression.type": "lz4", "log_level": 0, "reconnect.backoff.max.ms": 500}
        own |= {"message.max.bytes": 2 * LARGE_BYTES}
        return {"bootstrap.servers": self._bootstrap, **own}

    def _idempotent_producer(self) -> Producer:
        own = {"enable.idempotence": True, "linger.ms": 20, "message.timeout.ms": 300_000}
        return Producer(self._common | own)

    def _transactional_producer(self) -> Producer:
        own = {"transactional.id": f"load/{self._topic}", "transaction.timeout.ms": 20_000}
        producer = Producer(self._common | own)
        producer.init_transactions(CONTROL_SECONDS)
        return producer

    def _batch(self, stream: int, count: int, rng: random.Random, odd: Odd | None = None) -> Batch:
        first = self._next[stream]
        self._next[stream] += count
        numbers = range(first, first + count)
        share = 1.0 if stream // 2 in self.spoiled else self.bad
        bad = [number for number in numbers if rng.random() < share]
        if odd is None:
            return Batch(self._recorder, stream, first, count, bad, outcomes=self._outcomes)
        usual = [number for number in numbers if number not in bad]
        chosen = [number for number in usual if rng.random() < odd.per_second / self._per_second]
        if odd.bad:
            bad = sorted([*bad, *chosen])
        either = [] if odd.bad else chosen
        made = {number: odd.record(stream, number) for number in chosen}
        return Batch(self._recorder, stream, first, count, bad, outcomes=self._outcomes, either=either, odd=made)

    def _produce(
        self,
        producer: Producer,
        partition: int,
        batch: Batch,
        on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> None:
        more: dict[str, Any] = {} if on_delivery is None else {"on_delivery": on_delivery}
        if self.group:
            more["headers"] = forged(self.group, self._topic, partition)
        for value, name, timestamp in batch.records():
            record: dict[str, Any] = {"value": value, "key": name, "partition": partition, "timestamp": timestamp}
            while not _accepted(producer, self._topic, record | more):
                producer.list_topics(self._topic, CONTROL_SECONDS)


def _drop(producer: Producer) -> None:
    """Give up what a failed producer holds, and wait for the outcome of what is under way: nothing may come later."""
    with contextlib.suppress(*FAILED):
        producer.purge(in_flight=False)
        producer.flush(CONTROL_SECONDS)


def _accepted(producer: Producer, topic: str, record: Mapping[str, Any]) -> bool:
    """Return whether the producer accepted a record; it may not know a partition yet that was just added."""
    try:
        producer.produce(topic, **record)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
        return False
    return True


class Batch:
    """
    Lines that were written together; recorded when the outcome of the last one is known.

    Args:
        recorder: gets the outcome.
        stream: the stream of the lines.
        first: the first number.
        count: how many lines there are.
        bad: the numbers of those that must be rejected.
        outcomes: the counter of lines by outcome to add to.
        either: the numbers of those that may be in the sink or among the dead letters.
        odd: the records of the odd ones, by number.
    """

    def __init__(
        self,
        recorder: Recorder,
        stream: int,
        first: int,
        count: int,
        bad: list[int],
        *,
        outcomes: Counter[str],
        either: Sequence[int] = (),
        odd: Mapping[int, Source] = MappingProxyType({}),
    ) -> None:
        """No outcome is known yet."""
        self.stream, self.first, self.count, self.bad = stream, first, count, bad
        self._either, self._odd = either, odd
        self._recorder, self._totals = recorder, outcomes
        self._reports: list[str] = []
        self._forgotten = False

    def records(self) -> Iterator[Source]:
        """Yield the records, in order."""
        bad = set(self.bad)
        for number in range(self.first, self.first + self.count):
            if number in self._odd:
                yield self._odd[number]
            else:
                make = bad_line(self.stream, number) if number in bad else line(number, self.stream)
                yield Source(make, key(self.stream, number))

    def on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        """Take a delivery report; reports come in the order of the lines."""
        self._reports.append("ok" if error is None else "unknown")
        if len(self._reports) == self.count and not self._forgotten:
            self.record("ok" if set(self._reports) == {"ok"} else "unknown")

    def forget(self) -> None:
        """Record the outcome as unknown, although reports may still come: its producer did not take all lines."""
        self._forgotten = True
        self.record("unknown")

    def record(self, outcome: str) -> None:
        """Record the outcome of all lines."""
        self._totals[outcome] += self.count
        fields = {"stream": self.stream, "first": self.first, "count": self.count, "bad": self.bad}
        self._recorder.record("write", outcome=outcome, **fields, **{"either": self._either} if self._either else {})


def fresh_name() -> str:
    """Return a name that no other run uses."""
    return f"chaos-{uuid.uuid4().hex[:8]}"
