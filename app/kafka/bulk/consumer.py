"""
Consumes without a Python object for each record: compiled kernels read librdkafka's own messages.

Only the call that sees every record is here. confluent-kafka still handles assignments and offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError
from numpy.typing import NDArray

from app.kafka.bulk import kernels, native
from app.kafka.consumer import Event, TaskConsumer, ends_and_failures
from app.model import Partition, TaskConfig
from app.records import Chunk

T = TypeVar("T")
_TIMESTAMP_OF = native.address(native.message_timestamp)
_DESTROY_OF = native.address(native.message_destroy)


class BulkConsumer(TaskConsumer):
    """
    Takes the addresses of librdkafka's messages and copies the messages into Arrow buffers.

    confluent-kafka handles errors and logs by callbacks, which crash outside its own poll. They arrive on the main
    queue, which librdkafka usually forwards to the consumer's queue. Here it is served as events instead.
    """

    # 2,500, 5,000, 10,000 and 20,000 cost 3.2, 2.4, 2.4 and 2.05 CPU-seconds per million records (make bench).
    max_records = 20_000

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self._queue = native.consumer_queue(native.handle(self.client))
        self._news = native.main_queue(native.handle(self.client))
        native.queue_forward(self._news, None)
        self.client.consume(self.max_records, 0)  # drain what was already forwarded; no partition is assigned yet
        self._messages = np.empty(self.max_records, np.int64)
        self._others = np.empty(self.max_records, np.int64)
        self._runs = np.empty((self.max_records, 3), np.int64)
        self._found = np.zeros(7, np.int64)
        self._held = 0
        self._alive: NDArray[np.int64] | None = None

    def close(self) -> None:
        """Free the last chunk's messages and close the client without committing."""
        if self._queue:
            self._release()
            native.queue_destroy(self._queue)
            native.queue_destroy(self._news)
            self._queue = 0
        super().close()

    def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
        """Return what has arrived; a chunk's headers are readable until the next poll."""
        if not self._queue:
            raise RuntimeError("the consumer is closed")
        self._release()
        self._hear_news()
        address, wanted = self._messages.ctypes.data, self.wanted(most)
        self._held = native.consume_batch(self._queue, int(seconds * 1000), address, wanted)
        return self._chunk(self._messages[: self._held], full=self._held == wanted) if self._held else None

    def _release(self) -> None:
        """Free the messages of the last chunk, which its headers are read from."""
        kernels.destroy(_DESTROY_OF, self._messages[: self._held])
        self._held, self._alive = 0, None

    def _hear_news(self) -> None:
        """Handle errors without a partition. librdkafka recovers from them itself, unless Kafka denies access."""
        while (event := native.queue_poll(self._news, 0)) is not None:
            if code := native.event_error(event):
                self._heard(KafkaError(code))
            native.event_destroy(event)

    def _chunk(self, messages: NDArray[np.int64], *, full: bool) -> Chunk:
        records = np.empty(len(messages), np.int64)
        kernels.scan(messages, records, self._others, self._runs, self._found)
        found: list[int] = self._found.tolist()
        records = records[: found[kernels.RECORDS]]
        sources = self._sources(self._runs[: found[kernels.RUNS]], len(records))
        if (sources[1:] < sources[:-1]).any():
            order = np.argsort(sources, kind="stable")
            records, sources = records[order], sources[order]
        offsets, timestamps = np.empty(len(records), np.int64), np.empty(len(records), np.int64)
        values = _Column(len(records), found[kernels.VALUE_BYTES], found[kernels.NULL_VALUES])
        keys = _Column(len(records), found[kernels.KEY_BYTES], found[kernels.NULL_KEYS])
        kernels.gather(records, _TIMESTAMP_OF, offsets, timestamps, *values.buffers, *keys.buffers)
        self._alive = records
        ends, failures = ends_and_failures(map(_event, self._others[: found[kernels.OTHERS]].tolist()))
        self.adapt(len(records), found[kernels.VALUE_BYTES])
        return Chunk(
            partitions=self.partitions,
            sources=sources,
            offsets=offsets,
            timestamps=timestamps,
            keys=keys.array(),
            values=values.array(),
            headers=partial(self._read, native.headers_of, records),
            epoch_of=partial(self._read, native.message_leader_epoch, records),
            ends=ends,
            failures=failures,
            full=full,
        )

    def _sources(self, runs: NDArray[np.int64], records: int) -> NDArray[np.int32]:
        """Return the index of each record's partition."""
        names = {topic: _topic(topic) for topic in set(runs[:, 0].tolist())}
        places = [self.places[Partition(names[topic], number)] for topic, number, _ in runs.tolist()]
        return np.repeat(np.array(places, np.int32), np.diff(runs[:, 2], append=records))

    def _read(self, read: Callable[[int], T], records: NDArray[np.int64], row: int) -> T:
        if records is not self._alive:
            raise RuntimeError("headers and leader epochs are readable only until the next poll")
        return read(int(records[row]))


class _Column:
    """The buffers of an Arrow array of values or keys, which a kernel fills."""

    def __init__(self, rows: int, size: int, nulls: int) -> None:
        if size > np.iinfo(np.int32).max:
            raise OverflowError(f"one poll returned {size} bytes, more than 2 GiB: lower queued.max.messages.kbytes")
        validity = np.zeros((rows + 7) // 8 if nulls else 0, np.uint8)
        self.buffers = np.empty(size, np.uint8), np.empty(rows + 1, np.int32), validity
        self._rows, self._nulls = rows, nulls

    def array(self) -> pa.BinaryArray:
        """Return the array without copying."""
        texts, ends, validity = (pa.py_buffer(each.data) for each in self.buffers)
        buffers = [validity if self._nulls else None, ends, texts]
        return cast("pa.BinaryArray", pa.Array.from_buffers(pa.binary(), self._rows, buffers, self._nulls))


def _topic(topic: int) -> str:
    return cast("bytes", native.topic_name(topic)).decode()


def _event(address: int) -> Event:
    message = native.Message.from_address(address)
    topic = None if message.topic is None else _topic(message.topic)
    return topic, message.partition, message.offset, native.kafka_error(message.error, native.message_errstr(address))
