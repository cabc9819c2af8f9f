"""Produces from Arrow buffers by compiled kernels, without a Python object for each record or delivery report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer
from numpy.typing import NDArray

from app.kafka.bulk import kernels, native
from app.kafka.delivery import Delivery, MakeClient
from app.kafka.sender import Sender, Targets
from app.records import DeadLetters, Lines, OutgoingRecord
from parsers.compiled.buffers import Buffers

PURGED = KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT  # noqa: SLF001  # librdkafka's own codes are private
_PRODUCEVA = native.address(native.produceva)


class BulkSender(Sender):
    """Queues records from Arrow buffers."""

    def __init__(self, client: Producer, targets: Targets) -> None:
        super().__init__(client, targets)
        self._handle = native.handle(client)
        self._line = _Target(self._handle, targets.sink, targets.sink_partition)
        self._dead_letter = _Target(self._handle, targets.dead_letters, targets.dead_letter_partition)
        self._open = True

    def _offer(self, lines: Lines, begin: int) -> int:
        self._check_open()
        names = [np.frombuffer(name.encode() + b"\0", np.uint8) for name, _ in lines.headers]  # kernels use its memory
        headers = _table(names, [column for _, column in lines.headers])
        state = np.array([begin, 0], np.int64)
        rows = np.require(lines.rows, requirements=["A", "W"])  # a parser's may be read-only, which kernels refuse
        columns = *_column(lines.values), *_column(lines.keys), headers
        fields = self._line.fields(len(headers))
        kernels.produce(_PRODUCEVA, self._handle, fields, *columns, rows, lines.timestamps, state)
        return _came_to(state)

    def offer_dead_letters(self, dead_letters: Sequence[OutgoingRecord], begin: int) -> int:
        """
        Queue dead letters, from row `begin` on.

        For each record confluent-kafka's own call would allocate state that only its own poll frees.
        """
        self._check_open()
        flat = DeadLetters.of(dead_letters)
        state = np.array([begin, 0], np.int64)
        fields = self._dead_letter.fields(int(np.diff(flat.begins).max(initial=0)) // 2 - 1)
        parts = *_column(flat.parts), flat.begins
        kernels.produce_dead_letters(_PRODUCEVA, self._handle, fields, *parts, flat.timestamps, state)
        return _came_to(state)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._line.close()
            self._dead_letter.close()

    def _check_open(self) -> None:
        if not self._open:
            msg = "the sender is closed"
            raise RuntimeError(msg)


class _Target:
    """The fields of rd_kafka_produceva for one partition; a kernel fills in the others for each record."""

    def __init__(self, client: int, topic: str, partition: int) -> None:
        self._topic = native.topic_new(client, topic.encode(), None)
        self._fields = np.zeros((kernels.VALUE_FIELD + 1, native.FIELD_WORDS), np.int64)
        self._fields[kernels.FLAGS_FIELD, :2] = native.MESSAGE_FLAGS, native.COPY
        self._fields[kernels.TOPIC_FIELD, :2] = native.TOPIC, self._topic
        self._fields[kernels.PARTITION_FIELD, :2] = native.PARTITION, partition
        self._fields[kernels.TIMESTAMP_FIELD, 0] = native.TIMESTAMP
        self._fields[kernels.KEY_FIELD, 0] = native.KEY
        self._fields[kernels.VALUE_FIELD, 0] = native.VALUE

    def fields(self, headers: int = 0) -> NDArray[np.int64]:
        """Return the fields, with space for this many headers after them."""
        wanted = kernels.VALUE_FIELD + 1 + headers
        if wanted > len(self._fields):
            more = np.zeros((wanted - len(self._fields), native.FIELD_WORDS), np.int64)
            more[:, 0] = native.HEADER
            self._fields = np.concatenate([self._fields, more])
        return self._fields[:wanted]

    def close(self) -> None:
        native.topic_destroy(self._topic)


def _column(values: pa.BinaryArray) -> tuple[int, int, int, int]:
    """Return the addresses of an array's buffers, for the kernels."""
    buffers = Buffers.of(values)
    return buffers.values, buffers.offsets, buffers.validity, buffers.first


def _table(names: Sequence[NDArray[np.uint8]], columns: Sequence[pa.BinaryArray]) -> NDArray[np.int64]:
    """Return the addresses of each header's name and column buffers, for the kernel."""
    table = np.zeros((len(names), 5), np.int64)
    for row, name, column in zip(table, names, columns, strict=True):
        row[:] = name.ctypes.data, *_column(column)
    return table


def _came_to(state: NDArray[np.int64]) -> int:
    """Return the row that a kernel stopped at: the end, or one that found the queue full. Raise any other error."""
    row, error = state.tolist()
    if error:
        refusal = native.take_error(error)
        if refusal.code() != native.QUEUE_FULL:
            raise KafkaException(refusal)
    return int(row)


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
            msg = "the delivery reports are closed"
            raise RuntimeError(msg)
        event = native.queue_poll(self._reports, int(seconds * 1000))
        while event is not None:
            if native.event_type(event) == native.DELIVERY_REPORT and native.event_error(event):
                self.undelivered = self.undelivered or self._reason(native.error_of_event(event))
            native.event_destroy(event)
            event = native.queue_poll(self._reports, 0)

    def _reason(self, error: KafkaError) -> KafkaError:
        """Return why a record was not delivered: a fatal error purges those that wait."""
        fatal = native.fatal_error(self._handle) if error.code() in PURGED else None
        return fatal or error

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
