"""Makes dead letters: the source record unchanged, with Kafka Connect's error headers, which existing tools read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import cast

import numpy as np
import pyarrow as pa

from app.model import Partition
from app.records import HEADER_FRAMING, Chunk, DeadLetter, DeadLetters, Headers
from parsers.contract import Parsed, Reject

STAGE = b"VALUE_CONVERTER"
_NAMES = tuple(
    f"__connect.errors.{name}".encode() + b"\0"
    for name in ("stage", "topic", "partition", "offset", "exception.class.name", "exception.message")
)


def make_dead_letters(chunk: Chunk, parsed: Parsed, max_bytes: int) -> Sequence[DeadLetter]:
    """Return a dead letter for each rejected row, in order. Headers are read now: after the next poll they are gone."""
    if not len(parsed.reject_rows):
        return []
    if not any(map(chunk.headers, parsed.reject_rows.tolist())):
        alike = _all_at_once(chunk, parsed)
        if (alike.sizes() + len(_NAMES) * HEADER_FRAMING <= max_bytes).all():
            return alike
    sources = chunk.sources[parsed.reject_rows].tolist()
    return [
        make_dead_letter(chunk, chunk.partitions[source], reject, max_bytes)
        for source, reject in zip(sources, parsed.rejects(), strict=True)
    ]


def _all_at_once(chunk: Chunk, parsed: Parsed) -> DeadLetters:
    """Return the dead letters of records without headers, none of them cut, without a Python object for any of them."""
    rows, total = parsed.reject_rows, len(parsed.reject_rows)
    sources, origin_of = np.unique(chunk.sources[rows], return_inverse=True)
    origins = [chunk.partitions[source] for source in sources.tolist()]
    columns = [
        chunk.values.take(rows),
        chunk.keys.take(rows),
        pa.array([*_NAMES, STAGE], pa.binary()),
        pa.array([partition.topic.encode() for partition in origins], pa.binary()),
        pa.array([b"%d" % partition.number for partition in origins], pa.binary()),
        pa.array(chunk.offsets[rows]).cast(pa.string()).cast(pa.binary()),
        parsed.reasons.cast(pa.binary()),
        parsed.details.cast(pa.binary()),
    ]
    value, key, name, topic, number, offset, reason, detail = np.cumsum([0, *map(len, columns[:-1])]).tolist()
    each, zeros = np.arange(total), np.zeros(total, np.int64)
    order = [value + each, key + each]
    stage, origin = name + len(_NAMES) + zeros, (topic + origin_of, number + origin_of)
    for place, header in enumerate((stage, *origin, offset + each, reason + each, detail + each)):
        order += name + place + zeros, header
    parts = cast("pa.BinaryArray", pa.concat_arrays(columns).take(np.stack(order, axis=1).ravel()))
    return DeadLetters(parts, np.arange(total + 1, dtype=np.int32) * len(order), chunk.timestamps[rows])


def make_dead_letter(chunk: Chunk, partition: Partition, reject: Reject, max_bytes: int) -> DeadLetter:
    """
    Return the dead letter of a rejected record, with key, value, headers and timestamp unchanged.

    Only what the dead-letter topic could not take even compressed is cut; then the message says how long the value
    was, its SHA-256, and where the whole record still stands.
    """
    key, value = chunk.keys[reject.row].as_py(), chunk.values[reject.row].as_py()
    where, original = int(chunk.offsets[reject.row]), chunk.headers(reject.row)
    stamp = int(chunk.timestamps[reject.row])
    whole = DeadLetter(key, value, [*original, *_context(partition, where, reject)], stamp)
    if _fits(whole, max_bytes):
        return whole
    cut = f"{reject.detail}; cut from {len(value or b'')} bytes, SHA-256 {hashlib.sha256(value or b'').hexdigest()}"
    context = _context(partition, where, reject._replace(detail=cut))
    bare = DeadLetter(key, b"", [*original, *context], stamp)
    if _size(bare) > max_bytes:
        bare = DeadLetter(None, b"", context, stamp)
    return bare._replace(value=(value or b"")[: max(0, max_bytes - _size(bare))])


def _context(partition: Partition, offset: int, reject: Reject) -> Headers:
    return [
        *_origin(partition),
        ("__connect.errors.offset", b"%d" % offset),
        ("__connect.errors.exception.class.name", reject.reason.encode("utf-8", "replace")),
        ("__connect.errors.exception.message", reject.detail.encode("utf-8", "replace")),
    ]


@cache
def _origin(partition: Partition) -> Headers:
    return [
        ("__connect.errors.stage", STAGE),
        ("__connect.errors.topic", partition.topic.encode()),
        ("__connect.errors.partition", b"%d" % partition.number),
    ]


def _fits(one: DeadLetter, max_bytes: int) -> bool:
    """Tell whether the topic takes it; large ones are tried compressed, as the broker measures them."""
    size = _size(one)
    if size <= max_bytes or not one.value:
        return size <= max_bytes
    saved = len(one.value) - len(pa.compress(one.value, codec="lz4"))
    return size - saved * 9 // 10 <= max_bytes


def _size(one: DeadLetter) -> int:
    headers = sum(len(name) + len(value or b"") + HEADER_FRAMING for name, value in one.headers)
    return len(one.key or b"") + len(one.value or b"") + headers
