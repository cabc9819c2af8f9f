"""Makes dead letters: the source record as it was, with Kafka Connect's error headers, which known tools read."""

from __future__ import annotations

import hashlib
from functools import cache

import pyarrow as pa

from app.model import Partition
from app.records import Chunk, Headers, Letter
from parsers.contract import Reject

STAGE = b"VALUE_CONVERTER"


def letter(chunk: Chunk, partition: Partition, reject: Reject, most_bytes: int) -> Letter:
    """
    Turn a rejected record into a dead letter, with key, value, headers and timestamp unchanged.

    Only what the dead-letter topic could not take even compressed is cut; then the message says how long the value
    was, its SHA-256, and where the whole record still stands.
    """
    key, value = chunk.keys[reject.row].as_py(), chunk.values[reject.row].as_py()
    where, original = int(chunk.offsets[reject.row]), chunk.headers(reject.row)
    stamp = int(chunk.timestamps[reject.row])
    whole = Letter(key, value, [*original, *_context(partition, where, reject)], stamp)
    if _fits(whole, most_bytes):
        return whole
    cut = f"{reject.detail}; cut from {len(value or b'')} bytes, SHA-256 {hashlib.sha256(value or b'').hexdigest()}"
    context = _context(partition, where, reject._replace(detail=cut))
    bare = Letter(key, b"", [*original, *context], stamp)
    if _size(bare) > most_bytes:
        bare = Letter(None, b"", context, stamp)
    return bare._replace(value=(value or b"")[: max(0, most_bytes - _size(bare))])


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


def _fits(one: Letter, most_bytes: int) -> bool:
    """Tell whether the topic takes it; large ones are tried compressed, as the broker measures them."""
    size = _size(one)
    if size <= most_bytes or not one.value:
        return size <= most_bytes
    saved = len(one.value) - len(pa.compress(one.value, codec="lz4"))
    return size - saved * 9 // 10 <= most_bytes


def _size(one: Letter) -> int:
    headers = sum(len(name) + len(value or b"") + 8 for name, value in one.headers)
    return len(one.key or b"") + len(one.value or b"") + headers
