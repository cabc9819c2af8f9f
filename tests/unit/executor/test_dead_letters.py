"""Dead letters, made for a whole chunk at once or one by one."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.executor.dead_letters import TopicIds, make_dead_letter, make_dead_letters
from app.executor.limits import CLOCK_MARGIN_MS, FRAMING_BYTES, Limits, Now
from app.executor.parse import parse
from app.headers import Headers
from app.model import NO_EPOCH, Destination, Partition, TimestampLimit
from app.records import NO_TIMESTAMP, Chunk, DeadLetters, OutgoingRecord
from parsers.contract import Parsed, Reject
from tests.fakes import make_task_config
from tests.fakes.parsers import Wrong

PARTITIONS = [Partition("raw", 0), Partition("raw", 12), Partition("other", 3)]
NOW = 1_800_000_000_000
CLOCKS = Now(NOW, NOW)
NO_IDS: TopicIds = {}
HOUR = 3_600_000

texts = st.binary(max_size=40)
headers = st.lists(st.tuples(st.text("ab€", max_size=3), st.none() | texts), max_size=2)
records = st.tuples(st.none() | texts, st.none() | texts, st.integers(0, 2), st.booleans())


def chunk_of(
    rows: Sequence[tuple[bytes | None, bytes | None, int, bool]], of_row: Sequence[Headers] = ()
) -> tuple[Chunk, Parsed]:
    """Make a chunk of (key, value, partition, rejected), and a parser's result for it."""
    bad = [number for number, row in enumerate(rows) if row[3]]
    good = [number for number, row in enumerate(rows) if not row[3]]
    chunk = Chunk(
        partitions=PARTITIONS,
        sources=np.array([row[2] for row in rows], np.int32),
        offsets=np.arange(len(rows), dtype=np.int64) * 3 + (1 << 40),
        timestamps=np.arange(len(rows), dtype=np.int64) - 1,
        keys=pa.array([row[0] for row in rows], pa.binary()),
        values=pa.array([row[1] for row in rows], pa.binary()),
        headers=lambda row: of_row[row] if of_row else [],
        epoch_of=lambda _: NO_EPOCH,
    )
    parsed = Parsed(
        values=pa.array([b"fine"] * len(good), pa.binary()),
        rows=np.array(good, np.int32),
        reject_rows=np.array(bad, np.int32),
        reasons=pa.array([f"reason_{number}" for number in bad], pa.string()),
        details=pa.array([f"detail € {number}" for number in bad], pa.string()),
    )
    return chunk, parsed


def one_by_one(chunk: Chunk, parsed: Parsed, topic: Limits, ids: TopicIds = NO_IDS) -> list[OutgoingRecord]:
    return [make_dead_letter(chunk, reject, topic, CLOCKS, ids) for reject in parsed.rejects()]


def taking(kafka: Mapping[str, str] | None = None, **settings: object) -> Limits:
    """Return the limits of a dead-letter topic with these settings; the sink accepts a mebibyte."""
    topic = replace(Destination("dead", 1, 1 << 20), **settings)  # type: ignore[arg-type]  # fields of many types
    return Limits.of(topic, make_task_config(dead_letters=topic, kafka=kafka or {}))


ROOMY = taking()


@given(
    st.lists(records, max_size=8),
    st.sampled_from([1 << 20, 420 + FRAMING_BYTES, 200 + FRAMING_BYTES]),
    st.sampled_from(
        [
            {},
            {"append_time": True},
            {"before": TimestampLimit("message.timestamp.before.max.ms", NOW - 4 + CLOCK_MARGIN_MS)},
        ]
    ),
    st.sampled_from(["reason", "refused"]),
    st.sampled_from([{}, {"raw": "one"}, {"raw": "one", "other": ""}, {"raw": "one", "other": "two"}]),
)
def test_all_at_once_is_the_same_as_one_by_one(
    rows: list[tuple[bytes | None, bytes | None, int, bool]],
    max_bytes: int,
    settings: Mapping[str, object],
    reason: str,
    ids: TopicIds,
) -> None:
    chunk, parsed = chunk_of(rows)
    reasons = [reason if row % 2 else "reason" for row in parsed.reject_rows.tolist()]
    parsed = replace(parsed, reasons=pa.array(reasons, pa.string()))
    topic = taking(None, max_bytes=max_bytes, **settings)

    made = make_dead_letters(chunk, parsed, topic, CLOCKS, ids)

    assert list(made) == one_by_one(chunk, parsed, topic, ids)


def test_rejects_without_headers_become_one_array() -> None:
    """If no record has headers, the dead letters of a chunk are one Arrow array."""
    chunk, parsed = chunk_of([(None, b"bad", 0, True), (b"k", b"good", 1, False), (b"", None, 2, True)])

    made = make_dead_letters(chunk, parsed, ROOMY, CLOCKS, NO_IDS)

    assert isinstance(made, DeadLetters)
    assert [(one.key, one.value, one.timestamp) for one in made] == [(None, b"bad", -1), (b"", None, 1)]


def test_headers_of_the_record_come_first() -> None:
    """A dead letter has the record's own headers first, then Winnow's. The next record may have none of its own."""
    own: list[Headers] = [[("h", b"1")], [], [("h", None)], []]
    bad, good = (None, b"bad", 0, True), (None, b"good", 0, False)
    chunk, parsed = chunk_of([bad, good, bad, bad], own)

    made = make_dead_letters(chunk, parsed, ROOMY, CLOCKS, NO_IDS)

    assert [one.headers[0] for one in made] == [
        ("h", b"1"),
        ("h", None),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ]


@given(
    st.lists(st.builds(OutgoingRecord, st.none() | texts, st.none() | texts, headers, st.integers(-1, 5)), max_size=5)
)
def test_dead_letters_as_an_array_are_the_same_dead_letters(some: list[OutgoingRecord]) -> None:
    """All fields survive, also in a slice."""
    flat = DeadLetters.of(some)

    assert list(flat) == some
    assert list(flat[1:3]) == some[1:3]
    assert [len(one.key or b"") + len(one.value or b"") for one in some] <= flat.sizes().tolist()
    assert DeadLetters.of(flat) is flat


def test_a_missing_dead_letter_is_an_index_error() -> None:
    """Negative indices count from the end."""
    flat = DeadLetters.of([OutgoingRecord(b"k", b"v", [], 1)])

    assert flat[-1] == flat[0] == OutgoingRecord(b"k", b"v", [], 1)
    with pytest.raises(IndexError):
        flat[1]


COMPRESSIBLE = b"again and " * 200_000
"""Two megabytes that every codec compresses well."""


@pytest.mark.parametrize(
    ("topic", "value", "whole"),
    [
        (taking(), COMPRESSIBLE, True),
        (taking(), COMPRESSIBLE * 3, False),  # librdkafka takes four times the largest batch, before compression
        (taking({"message.max.bytes": "10000000"}), COMPRESSIBLE * 3, True),
        (taking({"message.max.bytes": "1000000"}), COMPRESSIBLE, False),
        (taking({"compression.type": "none"}), COMPRESSIBLE, False),
        (taking({"compression.codec": "none"}), COMPRESSIBLE, False),
        (taking({"compression.codec": "none"}), COMPRESSIBLE[: 1 << 19], True),
        (taking({"compression.type": "zstd"}), COMPRESSIBLE, True),
        (taking({"compression.type": "gzip"}), COMPRESSIBLE, True),
        (taking({"compression.type": "snappy"}), COMPRESSIBLE, True),
        (taking(compression="uncompressed"), COMPRESSIBLE, False),
        (taking(compression="gzip"), COMPRESSIBLE, True),
        (taking({"compression.type": "none"}, compression="gzip"), COMPRESSIBLE, False),
    ],
)
def test_only_what_does_not_fit_is_cut(topic: Limits, value: bytes, whole: bool) -> None:
    """The producer's codec and limit count, and the topic's codec, as librdkafka and the broker apply them."""
    chunk, parsed = chunk_of([(b"k", value, 0, True)])

    (made,) = make_dead_letters(chunk, parsed, topic, CLOCKS, NO_IDS)

    assert made.value is not None
    assert value.startswith(made.value)
    assert whole == (made.value == value)
    assert whole or topic.max_bytes - 1_000 < len(made.value) < topic.max_bytes
    message = dict(made.headers)["__connect.errors.exception.message"] or b""
    assert whole == (hashlib.sha256(value).hexdigest().encode() not in message)


def size_of(one: OutgoingRecord) -> int:
    """Return the size of a dead letter in its batch: lengths, plus up to eight bytes of framing for each header."""
    return (
        len(one.key or b"")
        + len(one.value or b"")
        + sum(len(name) + len(value or b"") + 8 for name, value in one.headers)
    )


def exactly(max_bytes: int) -> Limits:
    """Return the limits of an uncompressed topic that accepts this size."""
    return replace(ROOMY, max_bytes=max_bytes, max_bytes_to_compress=max_bytes, codecs=frozenset({"none"}))


@pytest.mark.parametrize("own_headers", [[], [("h", b"1")]])
def test_the_framing_of_headers_counts_against_the_limit(own_headers: list[tuple[str, bytes | None]]) -> None:
    """A dead letter that fills its batch exactly is whole. With a byte less room it is cut, and fits again."""
    chunk, parsed = chunk_of([(b"k", b"v" * 1_000, 0, True), (b"k", b"v" * 999, 0, True)], [own_headers] * 2)
    chunk = replace(chunk, timestamps=np.full(2, NOW))
    whole, smaller = one_by_one(chunk, parsed, ROOMY)

    assert [whole, smaller] == list(make_dead_letters(chunk, parsed, exactly(size_of(whole)), CLOCKS, NO_IDS))
    cut, same = make_dead_letters(chunk, parsed, exactly(size_of(whole) - 1), CLOCKS, NO_IDS)

    assert smaller == same
    assert size_of(whole) - 1 == size_of(cut)
    assert b"cut from 1000 bytes" in (dict(cut.headers)["__connect.errors.exception.message"] or b"")


def test_all_are_made_at_once_while_each_of_them_fits() -> None:
    """This needs a few spare bytes: for headers that only some have, and for the zero byte after each name."""
    chunk, parsed = chunk_of([(b"k", b"v" * 1_000, 0, True), (None, b"", 2, True)])
    largest = max(map(size_of, one_by_one(chunk, parsed, ROOMY)))

    spare = 8 + 8 + 6
    assert isinstance(make_dead_letters(chunk, parsed, exactly(largest + spare), CLOCKS, NO_IDS), DeadLetters)
    assert not isinstance(make_dead_letters(chunk, parsed, exactly(largest + spare - 1), CLOCKS, NO_IDS), DeadLetters)


def test_a_key_is_dropped_only_where_it_leaves_no_room() -> None:
    """So are the record's own headers. The reason and the origin of the record are always kept."""
    chunk, parsed = chunk_of([(b"k" * 500, b"v" * 1_000, 0, True)], [[("h", b"1")]])
    (with_key,) = make_dead_letters(chunk, parsed, exactly(1_100), CLOCKS, NO_IDS)
    without_value = size_of(with_key) - len(with_key.value or b"")
    (just,) = make_dead_letters(chunk, parsed, exactly(without_value), CLOCKS, NO_IDS)
    (without_key,) = make_dead_letters(chunk, parsed, exactly(without_value - 1), CLOCKS, NO_IDS)
    (with_nothing,) = make_dead_letters(chunk, parsed, exactly(10), CLOCKS, NO_IDS)

    assert (b"k" * 500, b"", ("h", b"1")) == (just.key, just.value, just.headers[0])
    assert (None, without_value - 1) == (without_key.key, size_of(without_key))
    assert just.headers[1:] == without_key.headers == with_nothing.headers
    assert (None, b"") == (with_nothing.key, with_nothing.value)


def test_what_a_parser_says_does_not_cut_the_record() -> None:
    """An exception may quote the whole line, which would then be in the dead letter twice."""

    def fail(_: Parsed) -> Parsed:
        raise ValueError(value)

    value = random.Random(0).randbytes(600_000)  # no codec makes it smaller
    chunk, _ = chunk_of([(b"k", value, 0, True)])

    (made,) = make_dead_letters(chunk, parse(Wrong(fail), chunk.values), ROOMY, CLOCKS, NO_IDS)

    assert (b"k", value) == (made.key, made.value)


AN_HOUR = TimestampLimit("message.timestamp.after.max.ms", HOUR)
A_DAY = TimestampLimit("message.timestamp.before.max.ms", 24 * HOUR)


@pytest.mark.parametrize(
    ("stamp", "reason", "moved"),
    [
        (NOW, "empty", False),
        (NOW, "refused", True),
        (NO_TIMESTAMP, "refused", False),
        (NO_TIMESTAMP, "empty", False),
        (NOW + HOUR - 2 * CLOCK_MARGIN_MS, "empty", False),
        (NOW + HOUR - CLOCK_MARGIN_MS // 2, "empty", True),
        (NOW - 24 * HOUR + 2 * CLOCK_MARGIN_MS, "empty", False),
        (NOW - 24 * HOUR + CLOCK_MARGIN_MS // 2, "empty", True),
        (0, "empty", True),
        ((1 << 63) - 1, "empty", True),
    ],
)
@pytest.mark.parametrize("headers", [[], [("h", b"1")]])
def test_a_timestamp_that_is_refused_becomes_a_header(
    stamp: int, reason: str, moved: bool, headers: list[tuple[str, bytes]]
) -> None:
    """The dead letter gets the time of writing. A margin allows for clocks that differ."""
    chunk, parsed = chunk_of([(b"k", b"v", 0, True)], [headers])
    chunk = replace(chunk, timestamps=np.array([stamp]))
    parsed = replace(parsed, reasons=pa.array([reason], pa.string()))

    (made,) = make_dead_letters(chunk, parsed, taking(before=A_DAY, after=AN_HOUR), CLOCKS, NO_IDS)

    assert (NO_TIMESTAMP if moved else stamp) == made.timestamp
    assert (b"%d" % stamp if moved else None) == dict(made.headers).get("__connect.errors.timestamp")
    assert headers == made.headers[: len(headers)]


@pytest.mark.parametrize(("stamp", "append_time", "moved"), [(1, False, False), (1, True, True), (0, False, True)])
def test_a_topic_that_takes_any_time_keeps_it_unless_it_sets_another(
    stamp: int, append_time: bool, moved: bool
) -> None:
    """With LogAppendTime the record's own timestamp would be lost, as would 0, so it becomes a header."""
    chunk, _ = chunk_of([(b"k", b"v", 0, True)])
    topic = taking(append_time=append_time)

    made = make_dead_letter(replace(chunk, timestamps=np.array([stamp])), Reject(0, "empty", ""), topic, CLOCKS, NO_IDS)

    assert (NO_TIMESTAMP if moved else stamp) == made.timestamp
    assert (b"%d" % stamp if moved else None) == dict(made.headers).get("__connect.errors.timestamp")


@pytest.mark.parametrize("topic_id", ["", "5L6g3nShT"])
def test_a_dead_letter_says_in_which_topic_of_that_name_its_record_was(topic_id: str) -> None:
    """A later topic of the same name has other records at the same offsets."""
    chunk, _ = chunk_of([(b"k", b"v", 0, True)])

    made = make_dead_letter(chunk, Reject(0, "empty", ""), ROOMY, CLOCKS, {"raw": topic_id})

    assert (topic_id.encode() or None) == dict(made.headers).get("__connect.errors.topic.id")
