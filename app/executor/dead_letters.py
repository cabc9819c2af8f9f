"""Makes dead letters: the unchanged source record plus Kafka Connect's error headers, which existing tools read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.executor.limits import CLOCK_MARGIN_MS, Limits, Now
from app.executor.parse import REFUSED
from app.headers import ERRORS, STAGE, TOPIC, TOPIC_ID, Headers, cut_from
from app.records import HEADER_FRAMING, NO_TIMESTAMP, Chunk, DeadLetters, OutgoingRecord
from parsers.contract import Parsed, Reject

VALUE_CONVERTER = b"VALUE_CONVERTER"
"""The stage as Kafka Connect names it."""
_NAMES = (
    STAGE,
    TOPIC,
    f"{ERRORS}partition",
    f"{ERRORS}offset",
    f"{ERRORS}exception.class.name",
    f"{ERRORS}exception.message",
    TOPIC_ID,
    f"{ERRORS}timestamp",
)
"""
In their order: `app.headers` finds by the first two where ours begin.

Only a topic with an id has that, and only a record with a new timestamp its old one.
"""
_NAMES_AND_STAGE = pa.array([*(name.encode() + b"\0" for name in _NAMES), VALUE_CONVERTER], pa.binary())
TopicIds = Mapping[str, str]
"""Topic ids by topic name; empty or missing if the brokers report none."""


def make_dead_letters(chunk: Chunk, parsed: Parsed, topic: Limits, now: Now, ids: TopicIds) -> Sequence[OutgoingRecord]:
    """Return a dead letter for each rejected row, in order. Call it before the next poll, which invalidates headers."""
    if not len(parsed.reject_rows):
        return []
    if not any(map(chunk.headers, parsed.reject_rows.tolist())):
        alike = _all_at_once(chunk, parsed, topic, now, ids)
        if (alike.sizes() + len(_NAMES) * HEADER_FRAMING <= topic.max_bytes).all():
            return alike
    return [make_dead_letter(chunk, reject, topic, now, ids) for reject in parsed.rejects()]


def _all_at_once(chunk: Chunk, parsed: Parsed, topic: Limits, now: Now, ids: TopicIds) -> DeadLetters:
    """Return the dead letters of records without headers, uncut, without creating a Python object for each."""
    rows, total = parsed.reject_rows, len(parsed.reject_rows)
    sources, origin_of = np.unique(chunk.sources[rows], return_inverse=True)
    origins = [chunk.partitions[source] for source in sources.tolist()]
    stamps = chunk.timestamps[rows]
    columns = [
        chunk.values.take(rows),
        chunk.keys.take(rows),
        _NAMES_AND_STAGE,
        pa.array([partition.topic.encode() for partition in origins], pa.binary()),
        pa.array([b"%d" % partition.number for partition in origins], pa.binary()),
        pa.array([ids.get(partition.topic, "").encode() for partition in origins], pa.binary()),
        pa.array(chunk.offsets[rows]).cast(pa.string()).cast(pa.binary()),
        parsed.reasons.cast(pa.binary()),
        parsed.details.cast(pa.binary()),
        pa.array(stamps).cast(pa.string()).cast(pa.binary()),
    ]
    value, key, name, origin, number, ident, offset, reason, detail, stamp = np.cumsum(
        [0, *map(len, columns[:-1])]
    ).tolist()
    each, zeros = np.arange(total), np.zeros(total, np.int64)
    order = [value + each, key + each]
    stage, place = name + len(_NAMES) + zeros, (origin + origin_of, number + origin_of)
    why = offset + each, reason + each, detail + each
    for header, text in enumerate((stage, *place, *why, ident + origin_of, stamp + each)):
        order += name + header + zeros, text
    moved = _moved(stamps, pc.equal(parsed.reasons, REFUSED).to_numpy(zero_copy_only=False), topic, now)
    wanted = np.ones((total, len(order)), np.bool_)
    wanted[:, -4:-2] = np.array([bool(ids.get(each.topic)) for each in origins])[origin_of, np.newaxis]
    wanted[:, -2:] = moved[:, np.newaxis]
    parts = cast("pa.BinaryArray", pa.concat_arrays(columns).take(np.stack(order, axis=1)[wanted]))
    begins = np.zeros(total + 1, np.int32)
    np.cumsum(wanted.sum(axis=1), out=begins[1:])
    return DeadLetters(parts, begins, np.where(moved, NO_TIMESTAMP, stamps))


def _moved(stamps: NDArray[np.int64], refused: NDArray[np.bool_], topic: Limits, now: Now) -> NDArray[np.bool_]:
    """
    Tell which timestamps are replaced by the time of writing: all, if the topic uses LogAppendTime; otherwise those
    that the topic may refuse, those of records that Kafka refused, because the timestamp may be the reason, and 0,
    which librdkafka reads as "now".
    """
    moved: NDArray[np.bool_] = refused | topic.topic.append_time | (stamps == 0)
    for _, untimely in topic.untimely(stamps, now, -CLOCK_MARGIN_MS):
        moved |= untimely
    moved &= stamps != NO_TIMESTAMP
    return moved


def make_dead_letter(chunk: Chunk, reject: Reject, topic: Limits, now: Now, ids: TopicIds) -> OutgoingRecord:
    """
    Return the dead letter of a rejected record, with its key, value, headers and timestamp unchanged.

    It is cut only if the dead-letter topic could not accept it even compressed. The message then gives the original
    length and SHA-256 of the value. A timestamp that the topic could refuse becomes a header.
    """
    key, value = chunk.keys[reject.row].as_py(), chunk.values[reject.row].as_py()
    stamps, original = chunk.timestamps[reject.row : reject.row + 1], chunk.headers(reject.row)
    moved = _moved(stamps, np.array([reject.reason == REFUSED]), topic, now).item()
    stamp = NO_TIMESTAMP if moved else stamps.item()
    whole = OutgoingRecord(key, value, [*original, *_context(chunk, reject, ids, moved=moved)], stamp)
    if topic.takes(_size(whole), value or b""):
        return whole
    told = reject._replace(detail=f"{reject.detail}; {cut_from(value)}")
    context = _context(chunk, told, ids, moved=moved)
    bare = OutgoingRecord(key, b"", [*original, *context], stamp)
    if _size(bare) > topic.max_bytes:
        bare = OutgoingRecord(None, b"", context, stamp)
    return bare._replace(value=(value or b"")[: max(0, topic.max_bytes - _size(bare))])


def _context(chunk: Chunk, reject: Reject, ids: TopicIds, *, moved: bool) -> Headers:
    topic, number = chunk.partitions[chunk.sources[reject.row]]
    values = (
        VALUE_CONVERTER,
        topic.encode(),
        b"%d" % number,
        b"%d" % chunk.offsets[reject.row],
        reject.reason.encode("utf-8", "replace"),
        reject.detail.encode("utf-8", "replace"),
        ids.get(topic, "").encode() or None,
        b"%d" % chunk.timestamps[reject.row] if moved else None,
    )
    return [(name, value) for name, value in zip(_NAMES, values, strict=True) if value is not None]


def _size(one: OutgoingRecord) -> int:
    headers = sum(len(name) + len(value or b"") + HEADER_FRAMING for name, value in one.headers)
    return len(one.key or b"") + len(one.value or b"") + headers
