"""Finds where a log was truncated: librdkafka asks for it (KIP-320), but tells it only as the error of a reader."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from app.errors import OffsetMoved, Truncated
from app.kafka import settings
from app.kafka.admin import ANSWER_SECONDS
from app.kafka.consumer import seek
from app.kafka.failures import explaining, is_end, of_partition, timed_out
from app.model import LastRead, Partition

TURN_SECONDS = 0.1


class KafkaCuts:
    """Asks with consumers that join no group and commit nothing. `group` is only for their ACLs."""

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._kafka = kafka
        self._group = group

    def find(self, partition: Partition, last: LastRead) -> int | None:
        own = settings.reader(self._kafka, self._group) | {"auto.offset.reset": "error"}
        at = TopicPartition(*partition, last.after, leader_epoch=last.epoch)
        with (
            explaining(self._kafka, f"asking where {partition} was truncated"),
            closing(Consumer(own, logger=settings.SILENT)) as consumer,
        ):
            consumer.assign([at])
            seek(consumer, at)
            return _told(consumer, partition)


def _told(consumer: Consumer, partition: Partition) -> int | None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        for message in consumer.consume(1, TURN_SECONDS):
            if (error := message.error()) is None or is_end(error):
                return None  # the last record read is still there
            match of_partition(error, partition, "reading"):
                case Truncated() as found:
                    return found.cut
                case OffsetMoved():
                    return None
    raise timed_out()
