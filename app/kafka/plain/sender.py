"""Passes records to librdkafka with confluent-kafka's calls, one for each record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.kafka.sender import Sender
from app.records import Lines


class PlainSender(Sender):
    """Queues records as Python objects, which works everywhere."""

    def _offer(self, lines: Lines, begin: int) -> int:
        topic, partition = self.targets.line
        produce = self._client.produce
        rows = lines.rows[begin:]
        values, keys = lines.values.slice(begin).to_pylist(), lines.keys.take(rows).to_pylist()
        stamps = lines.timestamps[rows].clip(0).tolist()  # see offer_one
        headers = _headers(lines, rows)
        # positional arguments: with keywords the call costs half as much again
        for number, (value, key, stamp, named) in enumerate(zip(values, keys, stamps, headers, strict=True), begin):
            try:
                produce(topic, value, key, partition, None, None, stamp, named)
            except BufferError:
                return number
        return len(lines)


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
