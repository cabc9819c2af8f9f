"""
Consumes and produces without a Python object for any record: the `bulk` way, by compiled kernels on librdkafka itself.

Only the two calls that see every record are here; assigning, committing and transactions stay with confluent-kafka.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer
from numpy.typing import NDArray

from app.errors import PartitionError
from app.kafka import settings
from app.kafka.bulk import kernels, native
from app.kafka.failures import of_partition
from app.kafka.plain.consumer import Reader
from app.kafka.plain.sender import MakeProducer, PlainSender
from app.model import Partition, TaskConfig
from app.records import Chunk, DeadLetter, DeadLetters, Headers, Lines
from parsers.compiled.buffers import Buffers

_TIMESTAMP_OF = native.address(native.message_timestamp)
_DESTROY_OF = native.address(native.message_destroy)
_PRODUCEVA = native.address(native.produceva)


class BulkConsumer(Reader):
    """
    Takes librdkafka's messages by their addresses and copies them into Arrow's buffers.

    The client's errors and logs, which confluent-kafka takes by callbacks, would crash in a poll that is not its own.
    They come by the main queue, which librdkafka forwards to the consumer's: here it is not, and is served as events.
    """

    max_records = 20_000

    def __init__(self, task_config: TaskConfig) -> None:
        super().__init__(task_config)
        self._queue = native.consumer_queue(native.handle(self.client))
        self._news = native.main_queue(native.handle(self.client))
        native.queue_forward(self._news, None)
        self.client.consume(self.max_records, 0)  # what was forwarded before; no partition is assigned yet
        self._messages = np.empty(self.max_records, np.int64)
        self._others = np.empty(self.max_records, np.int64)
        self._runs = np.empty((self.max_records, 3), np.int64)
        self._found = np.zeros(7, np.int64)
        self._held = 0
        self._alive: NDArray[np.int64] | None = None

    def close(self) -> None:
        """Free the last chunk's messages and close the client; commits nothing."""
        if self._queue:
            self._release()
            native.queue_destroy(self._queue)
            native.queue_destroy(self._news)
            self._queue = 0
        super().close()

    def poll(self, seconds: float) -> Chunk | None:
        """
        Take what has arrived, waiting at most so many seconds for a full chunk; None if nothing has.

        The headers of a chunk can be read until the next poll.
        """
        if not self._queue:
            msg = "the consumer is closed"
            raise RuntimeError(msg)
        self._release()
        self._drop_news()
        address = self._messages.ctypes.data
        self._held = native.consume_batch(self._queue, int(seconds * 1000), address, self.most)
        return self._chunk(self._messages[: self._held]) if self._held else None

    def _release(self) -> None:
        """Free the messages of the last chunk; until then their headers can be read."""
        kernels.destroy(_DESTROY_OF, self._messages[: self._held])
        self._held, self._alive = 0, None

    def _drop_news(self) -> None:
        """Drop errors of no partition, which librdkafka gets over by itself, and logs."""
        while (event := native.queue_poll(self._news, 0)) is not None:
            native.event_destroy(event)

    def _chunk(self, messages: NDArray[np.int64]) -> Chunk:
        records = np.empty(len(messages), np.int64)
        kernels.survey(messages, records, self._others, self._runs, self._found)
        found: list[int] = self._found.tolist()
        records = records[: found[kernels.RECORDS]]
        sources = self._sources(self._runs[: found[kernels.RUNS]], len(records))
        if (sources[1:] < sources[:-1]).any():
            order = np.argsort(sources, kind="stable")
            records, sources = records[order], sources[order]
        offsets, timestamps = np.empty(len(records), np.int64), np.empty(len(records), np.int64)
        values = _Column(len(records), found[kernels.VALUE_BYTES], found[kernels.NULL_VALUES])
        keys = _Column(len(records), found[kernels.KEY_BYTES], found[kernels.NULL_KEYS])
        kernels.gather(
            records,
            _TIMESTAMP_OF,
            offsets,
            timestamps,
            values.texts,
            values.ends,
            values.validity,
            keys.texts,
            keys.ends,
            keys.validity,
        )
        self._alive = records
        ends, failures = self._events(self._others[: found[kernels.OTHERS]].tolist())
        full = len(messages) == self.most
        self.adapt(len(records), found[kernels.VALUE_BYTES])
        return Chunk(
            partitions=self.partitions,
            sources=sources,
            offsets=offsets,
            timestamps=timestamps,
            keys=keys.array(),
            values=values.array(),
            headers=partial(self._headers, records),
            ends=ends,
            failures=failures,
            full=full,
        )

    def _sources(self, runs: NDArray[np.int64], records: int) -> NDArray[np.int32]:
        """Tell which of our partitions each record is from."""
        names = {topic: _topic(topic) for topic in set(runs[:, 0].tolist())}
        places = [self.places[Partition(names[topic], number)] for topic, number, _ in runs.tolist()]
        return np.repeat(np.array(places, np.int32), np.diff(runs[:, 2], append=records))

    def _headers(self, records: NDArray[np.int64], row: int) -> Headers:
        if records is not self._alive:
            msg = "headers can be read until the next poll"
            raise RuntimeError(msg)
        return native.headers_of(int(records[row]))

    def _events(self, messages: Sequence[int]) -> tuple[list[tuple[Partition, int]], list[PartitionError]]:
        ends: list[tuple[Partition, int]] = []
        failures: list[PartitionError] = []
        for address in messages:
            message = native.Message.from_address(address)
            if message.topic is None or message.partition < 0:
                continue  # trouble with no partition is a broker's: librdkafka reconnects by itself
            partition = Partition(_topic(message.topic), message.partition)
            if message.error == KafkaError._PARTITION_EOF:  # noqa: SLF001
                ends.append((partition, message.offset))
            else:
                failures.append(of_partition(native.error_of_message(address), partition, "reading", message.offset))
        return ends, failures


class _Column:
    """The buffers of an Arrow array of values or keys, to be filled by a kernel."""

    def __init__(self, rows: int, size: int, nulls: int) -> None:
        if size > np.iinfo(np.int32).max:
            msg = f"one poll brought {size} bytes, more than 2 GiB: lower queued.max.messages.kbytes"
            raise OverflowError(msg)
        self.texts = np.empty(size, np.uint8)
        self.ends = np.empty(rows + 1, np.int32)
        self.validity = np.zeros((rows + 7) // 8 if nulls else 0, np.uint8)
        self._rows, self._nulls = rows, nulls

    def array(self) -> pa.BinaryArray:
        """Give the array; nothing is copied."""
        validity = pa.py_buffer(self.validity.data) if self._nulls else None
        buffers = [validity, pa.py_buffer(self.ends.data), pa.py_buffer(self.texts.data)]
        return cast("pa.BinaryArray", pa.Array.from_buffers(pa.binary(), self._rows, buffers, self._nulls))


def _topic(topic: int) -> str:
    return cast("bytes", native.topic_name(topic)).decode()


class BulkSender(PlainSender):
    """Produces from Arrow's buffers."""

    def __init__(
        self,
        task_config: TaskConfig,
        partition: Partition,
        configured: settings.Settings,
        producer: MakeProducer = Producer,
    ) -> None:
        super().__init__(task_config, partition, configured, producer)
        self._handle = native.handle(self.client)
        self._line = _Target(self._handle, self._sink, self._sink_partition)
        self._letter = _Target(self._handle, self.dead_letters, self._dead_partition)
        self._open = True

    def offer(self, lines: Lines, begin: int) -> int:
        """Queue lines for the sink; see PlainSender."""
        self._check_open()
        values, keys = Buffers.of(lines.values), Buffers.of(lines.keys)
        state = np.array([begin, 0], np.int64)
        kernels.produce(
            _PRODUCEVA,
            self._handle,
            self._line.fields(),
            values.values,
            values.offsets,
            values.validity,
            values.first,
            keys.values,
            keys.offsets,
            keys.validity,
            keys.first,
            lines.rows,
            lines.timestamps,
            state,
        )
        return _came_to(state)

    def offer_dead_letters(self, dead_letters: Sequence[DeadLetter], begin: int) -> int:
        """
        Queue rejects for the dead-letter topic; see PlainSender.

        Not with confluent-kafka's call: what that allocates for each record, only its own poll would free.
        """
        self._check_open()
        flat = DeadLetters.of(dead_letters)
        texts = Buffers.of(flat.parts)
        state = np.array([begin, 0], np.int64)
        kernels.produce_dead_letters(
            _PRODUCEVA,
            self._handle,
            self._letter.fields(int(np.diff(flat.begins).max(initial=0)) // 2 - 1),
            texts.values,
            texts.offsets,
            texts.validity,
            texts.first,
            flat.begins,
            flat.timestamps,
            state,
        )
        return _came_to(state)

    def close(self) -> None:
        """Let librdkafka's objects go, before the client may end."""
        if self._open:
            self._open = False
            self._line.close()
            self._letter.close()

    def _check_open(self) -> None:
        if not self._open:
            msg = "the sender is closed"
            raise RuntimeError(msg)


class _Target:
    """One partition that is produced to, with the fields that say so; a kernel fills in the rest."""

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
        """Give the fields, and behind them room for so many headers."""
        wanted = kernels.VALUE_FIELD + 1 + headers
        if wanted > len(self._fields):
            more = np.zeros((wanted - len(self._fields), native.FIELD_WORDS), np.int64)
            more[:, 0] = native.HEADER
            self._fields = np.concatenate([self._fields, more])
        return self._fields[:wanted]

    def close(self) -> None:
        """Let the topic go."""
        native.topic_destroy(self._topic)


def _came_to(state: NDArray[np.int64]) -> int:
    """Give the row that a kernel came to: the last, or one that found the queue full; raise any other refusal."""
    row, error = state.tolist()
    if error:
        refusal = native.take_error(error)
        if refusal.code() != native.QUEUE_FULL:
            raise KafkaException(refusal)
    return int(row)


class ReportingBulkSender(BulkSender):
    """
    Also hears of each record that was not delivered.

    confluent-kafka's poll and flush would drop the reports of records that it has not produced itself, so neither is
    ever called here: the client's main queue is served as events.
    """

    def __init__(
        self,
        task_config: TaskConfig,
        partition: Partition,
        configured: settings.Settings,
        producer: MakeProducer = Producer,
    ) -> None:
        super().__init__(task_config, partition, configured, producer)
        self._reports = native.main_queue(self._handle)

    def serve(self, seconds: float) -> None:
        """Hear what became of records that were queued; wait at most so long for news."""
        self._check_open()
        event = native.queue_poll(self._reports, int(seconds * 1000))
        while event is not None:
            if native.event_type(event) == native.DELIVERY_REPORT and native.event_error(event):
                self.undelivered = self.undelivered or native.error_of_event(event)
            native.event_destroy(event)
            event = native.queue_poll(self._reports, 0)

    def deliver_all(self, seconds: float) -> int:
        """Wait for every report; nothing but `linger.ms` is waited for that flush would not wait for."""
        deadline = time.monotonic() + seconds
        while left := native.waiting(self._handle):
            self.serve(min(0.1, max(0.0, deadline - time.monotonic())))
            if time.monotonic() > deadline:
                break
        return cast("int", left)

    def close(self) -> None:
        """Let librdkafka's objects go, before the client may end."""
        if self._open:
            native.queue_destroy(self._reports)
        super().close()
