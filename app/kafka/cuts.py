"""Finds where a log was truncated: librdkafka asks for it (KIP-320), but tells it only as the error of a reader."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from app.errors import Truncated
from app.kafka import settings
from app.kafka.consumer import seek
from app.kafka.failures import of_cluster, of_partition
from app.model import LastRead, Partition

ANSWER_SECONDS = 5.0
TURN_SECONDS = 0.1


class KafkaCuts:
    """Asks with consumers that join no group and commit nothing. `group` is only for their ACLs."""

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._kafka = kafka
        self._group = group

    def find(self, partition: Partition, last: LastRead) -> int | None:
        """
        Return where a log was truncated before the end of the last record read; None if its leader does not tell soon.

        Raises:
            Unreachable, NotUsable: Kafka does not respond, or denies access.
        """
        at = TopicPartition(*partition, last.after, leader_epoch=last.epoch)
        try:
            consumer = Consumer(
                settings.reader(self._kafka, self._group) | {"auto.offset.reset": "error"}, logger=settings.SILENT
            )
            consumer.assign([at])
            seek(consumer, at)
            cut = _told(consumer, partition)
            consumer.close()
        except KafkaException as error:
            raise of_cluster(error, f"asking where {partition} was truncated") from error
        return cut


def _told(consumer: Consumer, partition: Partition) -> int | None:
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        for message in consumer.consume(1, TURN_SECONDS):
            error = message.error()
            if error is None:
                return None  # the record is still there
            if isinstance(found := of_partition(error, partition, "reading"), Truncated):
                return found.cut
    return None
