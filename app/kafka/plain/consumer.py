"""Consumes confluent-kafka's message objects, which works everywhere."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from app.kafka.consumer import TaskConsumer, ends_and_failures
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
        events = list(filter(Message.error, messages))  # no Python frame for each record
        ends, failures = ends_and_failures(
            (each.topic(), each.partition(), each.offset(), error) for each in events if (error := each.error())
        )
        if events:
            messages = [message for message in messages if message.error() is None]
        records = len(messages)
        places = zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)
        values = pa.array(list(map(Message.value, messages)), pa.binary())
        self.adapt(records, values.nbytes)
        return Chunk(
            partitions=self.partitions,
            # mypy: a record has a topic and a partition; a plain tuple equals a Partition
            sources=np.fromiter(map(self.places.__getitem__, places), np.int32, records),  # type: ignore[arg-type]
            offsets=np.fromiter(map(Message.offset, messages), np.int64, records),
            # librdkafka returns -1 for a record without a timestamp, which is NO_TIMESTAMP
            timestamps=np.fromiter((stamp for _, stamp in map(Message.timestamp, messages)), np.int64, records),
            keys=pa.array(list(map(Message.key, messages)), pa.binary()),
            values=values,
            headers=lambda row: headers_of(messages[row]),
            epoch_of=lambda row: NO_EPOCH if (epoch := messages[row].leader_epoch()) is None else epoch,
            ends=ends,
            failures=failures,
            full=full,
        )
