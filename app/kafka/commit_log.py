"""Watches the commits of a group: Kafka writes each one to its topic `__consumer_offsets`, even if nothing changed."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from app.kafka import settings
from app.kafka.failures import error_of, is_refusal, of_cluster
from app.model import Partition

TOPIC = "__consumer_offsets"
ANSWER_SECONDS = 5.0
# The key versions of records that are commits.
COMMITS = (0, 1)


class KafkaCommitLog:
    """Reads the group's partition of `__consumer_offsets` on the cluster that the group commits to."""

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._kafka = kafka
        self._group = group

    def watch(self, seconds: float) -> Partition | None:
        """
        Watch until the group commits or the time is over; return the source partition of the commit.

        None also if reading that topic is not allowed.

        Raises:
            Unreachable: Kafka does not respond, so it is unknown whether anything commits.
        """
        began = time.monotonic()
        own: settings.Settings = {"group.id": self._group, "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        consumer = Consumer(
            settings.common(self._kafka) | own | {"isolation.level": "read_uncommitted"}, logger=settings.SILENT
        )
        try:
            if found := self._first_commit(consumer, began + seconds):
                return found
        except KafkaException as error:
            if not is_refusal(error_of(error)):
                raise of_cluster(error, f"watching the commits of group {self._group!r}") from error
        finally:
            consumer.close()
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        return None

    def _first_commit(self, consumer: Consumer, until: float) -> Partition | None:
        partitions = consumer.list_topics(TOPIC, ANSWER_SECONDS).topics[TOPIC].partitions
        if not partitions:
            return None
        place = TopicPartition(TOPIC, place_of(self._group, len(partitions)))
        place.offset = consumer.get_watermark_offsets(place, ANSWER_SECONDS)[1]
        consumer.assign([place])
        while (left := until - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is None or message.error() is not None or message.value() is None:
                continue
            group, partition = committed_by(message.key() or b"")
            if group == self._group:
                return partition
        return None


def place_of(group: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that holds a group: by Java's hash code of its name, as in Kafka."""
    code = 0
    for unit in struct.iter_unpack(">H", group.encode("utf-16-be")):
        code = (31 * code + unit[0]) & 0xFFFFFFFF
    positive = 0 if code == 0x80000000 else min(code, 0x100000000 - code)
    return positive % partitions


def committed_by(key: str | bytes) -> tuple[str, Partition]:
    """Return the group and partition of the commit with this key; an empty group if it is not a commit."""
    data = key.encode() if isinstance(key, str) else key
    nobody = "", Partition("", 0)
    try:
        (version,) = struct.unpack_from(">h", data)
        if version not in COMMITS:
            return nobody
        group, at = _text(data, 2)
        topic, at = _text(data, at)
        (number,) = struct.unpack_from(">i", data, at)
    except (struct.error, UnicodeDecodeError):
        return nobody
    return group, Partition(topic, number)


def _text(data: bytes, at: int) -> tuple[str, int]:
    """Return a length-prefixed text, and where it ends."""
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + length
    return data[at + 2 : end].decode(), end
