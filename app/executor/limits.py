"""What a topic takes of the records that are written to it, as its configuration told beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.kafka.properties import compression, largest_record
from app.model import Destination, TaskConfig
from app.records import NO_TIMESTAMP

# A record's own framing, its batch's header and the mark of a transaction's first record count against a topic's
# max.message.bytes too.
FRAMING_BYTES = 512
# A clock here and the broker's differ a little, and a record waits a little before it is written.
CLOCK_MARGIN_MS = 60_000
_UNCOMPRESSED = ("none", "uncompressed")


@dataclass(frozen=True, slots=True)
class Limits:
    """
    What a topic takes; all sizes are those of key, value and headers, in bytes.

    Args:
        topic: the topic.
        max_bytes: the size of a record that is taken however it is sent.
        max_bytes_to_compress: the size of a record that librdkafka takes if it becomes small enough by compression.
        codecs: how a record is compressed: by the producer, and by the broker where that stores records otherwise.
    """

    topic: Destination
    max_bytes: int
    max_bytes_to_compress: int
    codecs: frozenset[str]

    @classmethod
    def of(cls, topic: Destination, config: TaskConfig) -> Self:
        """Return what one of the two topics that a task writes to takes of its producers."""
        largest = largest_record(config.output_kafka, max(config.sink.max_bytes, config.dead_letters.max_bytes))
        codec = compression(config.output_kafka)
        return cls(
            topic,
            min(topic.max_bytes, largest) - FRAMING_BYTES,
            largest - FRAMING_BYTES,
            frozenset({codec, codec if topic.compression == "producer" else topic.compression}),
        )

    def takes(self, size: int, value: bytes) -> bool:
        """Tell whether the topic takes a record; a large one is tried compressed, as the broker measures it."""
        if size <= self.max_bytes or size > self.max_bytes_to_compress:
            return size <= self.max_bytes
        return all(size - _saved(value, codec) <= self.max_bytes for codec in self.codecs)

    def too_old(self, timestamps: NDArray[np.int64], now: int, margin: int = CLOCK_MARGIN_MS) -> NDArray[np.bool_]:
        """Tell which timestamps the topic refuses because they lie too far in the past, beyond a margin."""
        before = self.topic.before
        if before is None:
            return np.zeros(len(timestamps), np.bool_)
        old: NDArray[np.bool_] = (timestamps < now - before.milliseconds - margin) & (timestamps != NO_TIMESTAMP)
        return old

    def too_new(self, timestamps: NDArray[np.int64], now: int, margin: int = CLOCK_MARGIN_MS) -> NDArray[np.bool_]:
        """Tell which timestamps the topic refuses because they lie too far in the future, beyond a margin."""
        after = self.topic.after
        if after is None:
            return np.zeros(len(timestamps), np.bool_)
        return timestamps > now + after.milliseconds + margin


def _saved(value: bytes, codec: str) -> int:
    """Return how many bytes compression saves, cautiously: librdkafka compresses whole batches, by its own settings."""
    if codec in _UNCOMPRESSED:
        return 0
    return max(0, len(value) - len(pa.compress(value, codec=codec))) * 9 // 10
