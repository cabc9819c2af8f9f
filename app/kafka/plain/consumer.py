"""Consumes confluent-kafka's message objects, which works everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from numpy.typing import NDArray

from app.kafka.consumer import Event, TaskConsumer, ends_and_failures
from app.kafka.records import headers_of
from app.model import NO_EPOCH
from app.records import Chunk


class PlainConsumer(TaskConsumer):
    """Consumes confluent-kafka's message objects."""

    max_records = 5_000

    def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
        wanted = self.wanted(most)
        messages = self.client.consume(wanted, seconds)
        if not messages:
            return None
        full = len(messages) == wanted
        events = list(_events(messages)) if any(map(Message.error, messages)) else []  # no Python frame for each record
        ends, failures = ends_and_failures(events)
        if events:
            messages = [message for message in messages if message.error() is None]
        records = len(messages)
        values = pa.array(list(map(Message.value, messages)), pa.binary())
        self.adapt(records, values.nbytes)
        return Chunk(
            partitions=self.partitions,
            sources=self._sources(messages),
            offsets=np.fromiter(map(Message.offset, messages), np.int64, records),
            # librdkafka returns -1 for a record without a timestamp, which is NO_TIMESTAMP
            timestamps=np.fromiter((stamp for _, stamp in map(Message.timestamp, messages)), np.int64, records),
            keys=pa.array(list(map(Message.key, messages)), pa.binary()),
            values=values,
            headers=lambda row: headers_of(messages[row]),
            epoch_of=lambda row: _epoch(messages[row]),
            ends=ends,
            failures=failures,
            full=full,
        )

    def _sources(self, messages: list[Message]) -> NDArray[np.int32]:
        """Return the index of each record's partition."""
        places = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        # mypy: a record has a topic and a partition; a plain tuple equals a Partition
        return np.fromiter(map(self.places.__getitem__, places), np.int32, len(messages))  # type: ignore[arg-type]


def _events(messages: Iterable[Message]) -> Iterator[Event]:
    for message in messages:
        if (error := message.error()) is not None:
            yield message.topic(), message.partition(), message.offset(), error


def _epoch(message: Message) -> int:
    epoch = message.leader_epoch()
    return NO_EPOCH if epoch is None else epoch
