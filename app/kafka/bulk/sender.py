"""Produces from Arrow buffers by compiled kernels, without a Python object for each record or delivery report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer

from app.kafka.bulk import kernels, native
from app.kafka.delivery import Delivery, MakeClient
from app.kafka.sender import Sender, Targets
from app.records import DeadLetters, Lines, OutgoingRecord
from parsers.compiled.buffers import addresses

PURGED = KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT  # noqa: SLF001  # librdkafka's own codes are private
_PRODUCEVA = native.address(native.produceva)


class BulkSender(Sender):
    """Queues records from Arrow buffers."""

    def __init__(self, client: Producer, targets: Targets) -> None:
        super().__init__(client, targets)
        handle = native.handle(client)
        self._line, self._dead_letter = _Target(handle, *targets.line), _Target(handle, *targets.dead_letter)

    def _offer(self, lines: Lines, begin: int) -> int:
        names = [np.frombuffer(name.encode() + b"\0", np.uint8) for name, _ in lines.headers]  # kernels use its memory
        named = zip(names, lines.headers, strict=True)
        table = [(name.ctypes.data, *addresses(column)) for name, (_, column) in named]
        headers = np.array(table, np.int64).reshape(len(names), 5)
        rows = np.require(lines.rows, requirements=["A", "W"])  # a parser's may be read-only, which kernels refuse
        columns = addresses(lines.values), addresses(lines.keys), headers, rows, lines.timestamps
        return self._line.produce(kernels.produce, begin, len(names), *columns)

    def offer_dead_letters(self, dead_letters: Sequence[OutgoingRecord], begin: int) -> int:
        """
        Queue dead letters, from row `begin` on.

        For each record confluent-kafka's own call would allocate state that only its own poll frees.
        """
        flat = DeadLetters.of(dead_letters)
        headers = int(np.diff(flat.begins).max(initial=0)) // 2 - 1
        columns = addresses(flat.parts), flat.begins, flat.timestamps
        return self._dead_letter.produce(kernels.produce_dead_letters, begin, headers, *columns)

    def close(self) -> None:
        self._line.close()
        self._dead_letter.close()


class _Target:
    """Produces to one partition, with the fields of rd_kafka_produceva; a kernel fills in the rest for each record."""

    def __init__(self, client: int, topic: str, partition: int) -> None:
        self._client = client
        self._topic = native.topic_new(client, topic.encode(), None)
        self._fields = np.zeros((kernels.VALUE_FIELD + 1, native.FIELD_WORDS), np.int64)
        self._fields[kernels.FLAGS_FIELD, :2] = native.MESSAGE_FLAGS, native.COPY
        self._fields[kernels.TOPIC_FIELD, :2] = native.TOPIC, self._topic
        self._fields[kernels.PARTITION_FIELD, :2] = native.PARTITION, partition
        self._fields[kernels.TIMESTAMP_FIELD, 0] = native.TIMESTAMP
        self._fields[kernels.KEY_FIELD, 0] = native.KEY
        self._fields[kernels.VALUE_FIELD, 0] = native.VALUE

    def produce(self, kernel: Callable[..., int], begin: int, headers: int, *columns: object) -> int:
        """
        Queue records with at most so many `headers`, from row `begin` on.

        Returns the row that the kernel stopped at: the end, or one that found the queue full.
        """
        if not self._topic:
            raise RuntimeError("the sender is closed")
        wanted = kernels.VALUE_FIELD + 1 + headers
        if wanted > len(self._fields):
            more = np.zeros((wanted - len(self._fields), native.FIELD_WORDS), np.int64)
            more[:, 0] = native.HEADER
            self._fields = np.concatenate([self._fields, more])
        state = np.array([begin, 0], np.int64)
        kernel(_PRODUCEVA, self._client, self._fields[:wanted], *columns, state)
        row, error = state.tolist()
        if error and (refusal := native.take_error(error)).code() != native.QUEUE_FULL:
            raise KafkaException(refusal)
        return int(row)

    def close(self) -> None:
        if self._topic:
            native.topic_destroy(self._topic)
            self._topic = 0


class EventDelivery(Delivery):
    """
    Takes delivery reports as events of librdkafka's main queue, because confluent-kafka did not produce the records.

    Never call confluent-kafka's poll or flush here: they drop the reports of records that it did not produce.
    """

    undelivered: KafkaError | None = None

    def __init__(self, make: MakeClient) -> None:
        super().__init__(make)
        self._handle = native.handle(self.client)
        self._reports = native.main_queue(self._handle)

    def serve(self, seconds: float) -> None:
        if not self._reports:
            raise RuntimeError("the delivery reports are closed")
        event = native.queue_poll(self._reports, int(seconds * 1000))
        while event is not None:
            is_report = native.event_type(event) == native.DELIVERY_REPORT
            if self.undelivered is None and is_report and (code := native.event_error(event)):
                # A fatal error purges the records that wait.
                fatal = native.fatal_error(self._handle) if code in PURGED else None
                self.undelivered = fatal or native.kafka_error(code, native.event_error_string(event))
            native.event_destroy(event)
            event = native.queue_poll(self._reports, 0)

    def deliver_all(self, seconds: float) -> int:
        """Wait for every record; unlike flush, this cannot cut `linger.ms` short (`settings.LONGEST_LINGER_MS`)."""
        deadline = time.monotonic() + seconds
        while left := native.waiting(self._handle):
            self.serve(min(0.1, max(0.0, deadline - time.monotonic())))
            if time.monotonic() > deadline:
                break
        return cast("int", left)

    def close(self) -> None:
        if self._reports:
            native.queue_destroy(self._reports)
            self._reports = 0
