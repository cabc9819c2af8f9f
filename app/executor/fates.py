"""A dry run of a task's pipeline, used by audit and replay."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from app.executor.cleanse import CleansedChunk, Cleanser
from app.executor.parse import REFUSED, make_parser
from app.kafka.sender import Targets
from app.model import NO_EPOCH, Partition, TaskConfig
from app.records import Chunk, Fate, OutgoingRecord, Record
from parsers.contract import Parse, Reject

NOWHERE, NO_RECORD = Partition("", -1), OutgoingRecord(None, None, [], 0)


class Fates:
    """Cleanses records as a task with this configuration does. The clock returns seconds since the epoch."""

    def __init__(self, config: TaskConfig, parse: Parse, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._cleanser = Cleanser(config, make_parser(config), parse, ids={}, clocks=(clock,))

    def of(self, records: Sequence[Record]) -> list[Fate]:
        """Return the result for each record, in order."""
        found: list[Fate] = []
        while len(found) < len(records):
            left = records[len(found) :]
            results = self._cleanser.cleanse(_chunk(left))
            fates = {**dict(self._lines(left, results)), **self._rejects(left, results), **_dropped(left, results)}
            found += [fates[row] for row in range(len(results.chunk))]
        return found

    def refused(self, record: Record, cause: str) -> Fate:
        dead_letter = self._cleanser.refused(_chunk([record]), 0, cause)
        return self._rejected(record, dead_letter, Reject(0, REFUSED, cause))

    def _lines(self, records: Sequence[Record], results: CleansedChunk) -> Iterator[tuple[int, Fate]]:
        chunk, parsed = results.chunk, results.parsed
        keys = chunk.keys_of_lines.to_pylist()
        kept = [(name, column.to_pylist()) for name, column in chunk.kept]
        for row, value in zip(parsed.rows.tolist(), parsed.values.to_pylist(), strict=True):
            headers = [(name, values[row]) for name, values in kept if values[row] is not None]
            line = OutgoingRecord(keys[row], value, headers, records[row].timestamp)
            yield row, Fate(records[row], Targets.of(self._config, records[row].partition).line, line)

    def _rejects(self, records: Sequence[Record], results: CleansedChunk) -> dict[int, Fate]:
        rejects = zip(results.parsed.rejects(), results.dead_letters, strict=True)
        return {reject.row: self._rejected(records[reject.row], written, reject) for reject, written in rejects}

    def _rejected(self, record: Record, dead_letter: OutgoingRecord, reject: Reject) -> Fate:
        to = Targets.of(self._config, record.partition).dead_letter
        return Fate(record, to, dead_letter, reject.reason, reject.detail)


def _dropped(records: Sequence[Record], results: CleansedChunk) -> dict[int, Fate]:
    dropped = results.dropped
    return {
        row: Fate(records[row], NOWHERE, NO_RECORD, filtered=dropped.rules[by])
        for row, by in zip(dropped.rows.tolist(), dropped.by.tolist(), strict=True)
    }


def _chunk(records: Sequence[Record]) -> Chunk:
    partitions = list(dict.fromkeys(each.partition for each in records))
    places = {partition: place for place, partition in enumerate(partitions)}
    return Chunk(
        partitions=partitions,
        sources=np.array([places[each.partition] for each in records], np.int32),
        offsets=np.array([each.offset for each in records], np.int64),
        timestamps=np.array([each.timestamp for each in records], np.int64),
        keys=pa.array([each.key for each in records], pa.binary()),
        values=pa.array([each.value for each in records], pa.binary()),
        headers=lambda row: records[row].headers,
        epoch_of=lambda _row: NO_EPOCH,
    )
