"""What a topic accepts, as its configuration says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.kafka.properties import compression, largest_record
from app.model import Destination, TaskConfig, TimestampLimit
from app.records import NO_TIMESTAMP

# A record's framing, the batch header and the marker of a transaction's first record count against max.message.bytes.
FRAMING_BYTES = 512
# Allows for clock skew between this machine and the broker, and for the time until a record is written.
CLOCK_MARGIN_MS = 60_000


class Now(NamedTuple):
    """The time by clocks of which one may be wrong, in milliseconds since the epoch."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Limits:
    """
    What a topic accepts; all sizes are in bytes and cover key, value and headers.

    Args:
        max_bytes: the largest record that is accepted without compression.
        max_bytes_to_compress: the largest record that librdkafka accepts if compression makes it small enough.
        codecs: the producer's codec, and the broker's if it recompresses.
    """

    topic: Destination
    max_bytes: int
    max_bytes_to_compress: int
    codecs: frozenset[str]

    @classmethod
    def of(cls, topic: Destination, config: TaskConfig) -> Self:
        largest = largest_record(config.output_kafka, max(config.sink.max_bytes, config.dead_letters.max_bytes))
        codec = compression(config.output_kafka)
        return cls(
            topic,
            min(topic.max_bytes, largest) - FRAMING_BYTES,
            largest - FRAMING_BYTES,
            frozenset({codec, codec if topic.compression == "producer" else topic.compression}),
        )

    def takes(self, size: int, value: bytes) -> bool:
        """Tell whether the topic accepts a record. Large values are compressed, because the broker checks that size."""
        if size <= self.max_bytes or size > self.max_bytes_to_compress:
            return size <= self.max_bytes
        return all(size - _saved(value, codec) <= self.max_bytes for codec in self.codecs)

    def untimely(
        self, timestamps: NDArray[np.int64], now: Now, margin: int = CLOCK_MARGIN_MS
    ) -> Iterator[tuple[TimestampLimit, NDArray[np.bool_]]]:
        """Yield each limit of the topic, and which timestamps violate it beyond a margin, by all clocks."""
        before, after = self.topic.before, self.topic.after
        if before is not None:
            yield before, (timestamps < now.earliest - before.milliseconds - margin) & (timestamps != NO_TIMESTAMP)
        if after is not None:
            yield after, timestamps > now.latest + after.milliseconds + margin


def _saved(value: bytes, codec: str) -> int:
    """Return a cautious estimate of the bytes saved: librdkafka compresses whole batches with its own settings."""
    if codec in ("none", "uncompressed"):
        return 0
    return max(0, len(value) - len(pa.compress(value, codec=codec))) * 9 // 10
