"""Hands records to librdkafka with confluent-kafka's calls, one for each record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray

from app.kafka.sender import Targets
from app.records import DeadLetter, Lines


class PlainSender:
    """Queues records as Python objects, which works everywhere; see `app.kafka.sender.Sender`."""

    def __init__(self, client: Producer, targets: Targets) -> None:
        self.targets = targets
        self._client = client

    def offer(self, lines: Lines, begin: int) -> int:
        """
        Queue lines for the sink from one on; return the first that found the queue full, or how many there are.

        Raises:
            KafkaException: librdkafka refuses the next line.
        """
        topic, partition, produce = self.targets.sink, self.targets.sink_partition, self._client.produce
        rows = lines.rows[begin:]
        values, keys = lines.values.slice(begin).to_pylist(), lines.keys.take(rows).to_pylist()
        # librdkafka reads the timestamp 0 as "now", which is what a record without one gets.
        stamps = lines.timestamps[rows].clip(0).tolist()
        headers = _headers(lines, rows)
        # by position: by keyword the call costs half as much again
        for number, (value, key, stamp, named) in enumerate(zip(values, keys, stamps, headers, strict=True), begin):
            try:
                produce(topic, value, key, partition, None, None, stamp, named)
            except BufferError:
                return number
        return len(lines)

    def offer_dead_letters(self, dead_letters: Sequence[DeadLetter], begin: int) -> int:
        """Queue rejects for the dead-letter topic, as `offer` does."""
        for number, dead_letter in enumerate(dead_letters[begin:], begin):
            try:
                self._client.produce(
                    self.targets.dead_letters,
                    dead_letter.value,
                    dead_letter.key,
                    self.targets.dead_letter_partition,
                    timestamp=max(dead_letter.timestamp, 0),
                    headers=list(dead_letter.headers),
                )
            except BufferError:
                return number
        return len(dead_letters)

    def close(self) -> None:
        """Release nothing: nothing is held."""


def _headers(lines: Lines, rows: NDArray[np.int32]) -> Sequence[list[tuple[str, str | bytes | None]] | None]:
    """Return the headers of each of these rows, or None if no line has any."""
    if not lines.headers:
        return [None] * len(rows)
    columns = [column.take(rows).to_pylist() for _, column in lines.headers]
    names = [name for name, _ in lines.headers]
    return [
        [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
        for values in zip(*columns, strict=True)
    ]
