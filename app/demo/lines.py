"""Raw access-log lines from a recipe, each with its expected result, for the demo and the tests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO
from itertools import count, islice
from typing import NamedTuple

import fastavro
import numpy as np

from app.demo.vocabulary import join, make_fault, make_fields, make_gathertime, make_templates

POOL = 4096
"""The number of distinct lines, gather times and ports that a recipe combines."""
CHUNK = 10_000
LAST_DIGITS = [b"%04d" % number for number in range(CHUNK)]


class GeneratedRecord(NamedTuple):
    """One record of a source topic and its expected result: a cleansed value, or a reject's reason."""

    key: bytes
    value: bytes | None
    timestamp: int
    expected: bytes | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Recipe:
    """
    The recipe of a source topic; the same recipe always makes the same records.

    Args:
        count: the number of records of all partitions together.
        bad: the fraction of lines that must be rejected.
        enveloped: the fraction of lines inside Flume's Avro envelope; if 1, some rejects are broken envelopes.
        first_timestamp: the timestamp in ms of each partition's first record; each further one adds 1 ms.
    """

    partitions: int
    count: int
    seed: int = 1
    bad: float = 0.01
    enveloped: float = 0.0
    first_timestamp: int = 1_510_464_542_000

    def size(self, partition: int) -> int:
        return self.count // self.partitions + (partition < self.count % self.partitions)

    def lines(self, partition: int) -> Iterator[GeneratedRecord]:
        """Yield one partition's records in order. A key is the partition and the sequence number: `3:000000017`."""
        pool, size = _pool(self.seed), self.size(partition)
        for start in range(0, size, CHUNK):
            yield from islice(self._chunk(pool, partition, start), size - start)

    def _chunk(self, pool: Pool, partition: int, start: int) -> Iterator[GeneratedRecord]:
        """Yield a chunk of records, determined only by the recipe, the partition and the start."""
        dice = np.random.default_rng([self.seed, partition, start])
        bad, enveloped = dice.random(CHUNK) < self.bad, dice.random(CHUNK) < self.enveloped
        picks = dice.integers(0, POOL, (4, CHUNK))
        lines, stamps, ports = picks[:3].tolist()
        holes = list(zip(_picked(pool.stamps, stamps), _picked(pool.ports, ports), strict=True))
        values: list[bytes | None] = list(map(bytes.__mod__, _picked(pool.raw, lines), holes))
        expected: list[bytes | None] = list(map(bytes.__mod__, _picked(pool.clean, lines), holes))
        reasons: list[str | None] = [None] * CHUNK
        for at in np.flatnonzero(bad).tolist():
            values[at], reasons[at] = pool.bad[picks[0, at]]
            expected[at] = None
        for at in np.flatnonzero(enveloped | (bad & (self.enveloped > 0))).tolist():
            values[at], reasons[at] = self._envelop(
                pool, values[at], reasons[at], wanted=bool(enveloped[at]), pick=picks[3, at]
            )
        prefix, timestamp = b"%d:%05d" % (partition, start // CHUNK), self.first_timestamp + start
        columns = zip(map(prefix.__add__, LAST_DIGITS), values, count(timestamp), expected, reasons, strict=False)
        return map(partial(tuple.__new__, GeneratedRecord), columns)  # fast, because no Python frame runs per line

    def _envelop(
        self, pool: Pool, value: bytes | None, reason: str | None, *, wanted: bool, pick: int
    ) -> tuple[bytes | None, str | None]:
        """Wrap a value in Flume's envelope; if all are wrapped, a fifth of the rejects become broken envelopes."""
        if reason and self.enveloped >= 1 and pick % 5 == 0:
            return pool.broken_envelopes[pick // 5 % len(pool.broken_envelopes)], "envelope"
        # In a mix of formats, a raw line without its marker is ambiguous, so it is wrapped.
        if value is None or not (wanted or reason == "no_marker"):
            return value, reason
        return pool.headers[pick % len(pool.headers)] + LENGTHS[len(value)] + value, reason


@dataclass(frozen=True, slots=True)
class Pool:
    """The parts of lines, made once: `raw` and `clean` have holes for one of the `stamps` and one of the `ports`."""

    raw: list[bytes]
    clean: list[bytes]
    stamps: list[bytes]
    ports: list[bytes]
    bad: list[tuple[bytes | None, str]]
    headers: list[bytes]
    broken_envelopes: list[bytes]


def _picked(column: list[bytes], picks: list[int]) -> list[bytes]:
    return list(map(column.__getitem__, picks))


@cache
def _pool(seed: int) -> Pool:
    dice = random.Random(seed)  # noqa: S311 - sample data, not secrets
    good = [make_fields(dice) for _ in range(POOL)]
    raw, clean = map(list, zip(*(make_templates(fields, dice) for fields in good), strict=True))
    return Pool(
        raw=raw,
        clean=clean,
        stamps=[make_gathertime(dice) for _ in range(POOL)],
        ports=[b"%d" % dice.randint(1024, 65535) for _ in range(POOL)],
        bad=[make_fault(fields, dice) for fields in good],
        headers=[_envelope_headers(dice) for _ in range(64)],
        broken_envelopes=[broken for fields in good[:64] for broken in _broken_envelopes(fields, dice)],
    )


def _envelope_headers(dice: random.Random) -> bytes:
    """Encode the header map of an AvroFlumeEvent, as filled by Flume's netcat source and host interceptor."""
    headers = {"host": f"58.223.1.{dice.randint(1, 254)}", "timestamp": str(1_510_464_542_000 + dice.randint(0, 999))}
    if dice.random() < 0.3:
        headers["key"] = f"k{dice.randint(1, 9)}"
    return _avro({"type": "map", "values": "string"}, headers)


def _broken_envelopes(fields: list[bytes], dice: random.Random) -> tuple[bytes, ...]:
    """Return values that are not valid AvroFlumeEvents: truncated, unterminated or not wrapped."""
    headers, line = _envelope_headers(dice), join(fields)
    whole = headers + _avro("bytes", line)
    return whole[: len(headers) + 40], headers[:-1], headers[:9], b"\xff" * 24, line


def _avro(schema: str | dict[str, str], value: object) -> bytes:
    encoded = BytesIO()
    fastavro.schemaless_writer(encoded, schema, value)
    return encoded.getvalue()


LENGTHS = [_avro("long", length) for length in range(4096)]
"""Encoded lengths; every line of a recipe is shorter."""
