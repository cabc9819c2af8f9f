"""Which records a topic accepts according to its configuration."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from app.executor.limits import FRAMING_BYTES, Limits, Now
from app.model import Destination, TimestampLimit
from tests.fakes import make_task_config

SINK = Destination("clean", 2, 1_000_000)
NOW = 1_800_000_000_000
CLOCKS = Now(NOW, NOW)
HOUR = TimestampLimit("message.timestamp.…", 3_600_000)
DAY_MS = 86_400_000


def limits(topic: Destination, **kafka: str) -> Limits:
    return Limits.of(topic, make_task_config(sink=SINK, dead_letters=Destination("dead", 1, 10_000), kafka=kafka))


def test_a_record_may_be_as_large_as_its_batch() -> None:
    """Both limits leave room for the framing of a batch. A smaller limit of the user's counts too."""
    usual, user = limits(SINK), limits(SINK, **{"message.max.bytes": "300000"})

    assert (1_000_000 - FRAMING_BYTES, 4_000_000 - FRAMING_BYTES) == (usual.max_bytes, usual.max_bytes_to_compress)
    assert (300_000 - FRAMING_BYTES,) * 2 == (user.max_bytes, user.max_bytes_to_compress)
    assert 10_000 - FRAMING_BYTES == limits(Destination("dead", 1, 10_000)).max_bytes


@pytest.mark.parametrize(
    ("producer", "broker", "codecs"),
    [
        ("lz4", "producer", {"lz4"}),
        ("lz4", "zstd", {"lz4", "zstd"}),
        ("none", "gzip", {"none", "gzip"}),
        ("NONE", "gzip", {"none", "gzip"}),  # librdkafka takes any case
    ],
)
def test_a_record_must_be_small_enough_on_its_way_and_where_it_is_stored(
    producer: str, broker: str, codecs: set[str]
) -> None:
    """A broker may recompress records with another codec than the producer's."""
    topic = Destination("dead", 1, 10_000, compression=broker)

    assert codecs == limits(topic, **{"compression.type": producer}).codecs


def taken(value: bytes, *codecs: str) -> int:
    """Return the size of the largest record with this value that a topic for 10,000 bytes accepts."""
    topic = Limits(SINK, 10_000, 1_000_000, frozenset(codecs))
    return max(size for size in range(10_000 - 2, 10_000 + len(value)) if topic.takes(size, value))


def test_what_compression_saves_is_taken_into_account_cautiously() -> None:
    """Only nine tenths of it count, because librdkafka compresses whole batches with its own settings."""
    zeros = bytes(2_000)
    saved = len(zeros) - len(pa.compress(zeros, codec="lz4"))

    assert 10_000 + saved * 9 // 10 == taken(zeros, "lz4")
    assert 10_000 == taken(zeros, "none") == taken(zeros, "uncompressed") == taken(zeros, "none", "lz4")
    assert 10_000 == taken(np.random.default_rng(1).bytes(2_000), "lz4")  # noise does not compress


def test_no_compression_helps_against_the_producers_own_limit() -> None:
    """Librdkafka checks a record before it compresses it."""
    topic = Limits(SINK, 10_000, 20_000, frozenset({"lz4"}))

    assert topic.takes(20_000, bytes(15_000))
    assert not topic.takes(20_001, bytes(15_000))


def test_a_timestamp_at_the_limit_is_in_time() -> None:
    """A minute more is allowed, because clocks differ. A record without a timestamp gets the time of writing."""
    topic = limits(Destination("clean", 2, 1_000_000, before=HOUR, after=HOUR))
    edge = 3_600_000 + 60_000
    stamps = np.array([NOW - edge - 1, NOW - edge, NOW, NOW + edge, NOW + edge + 1, -1], np.int64)

    (_, too_old), (_, too_new) = topic.untimely(stamps, CLOCKS)
    assert [True, False, False, False, False, False] == too_old.tolist()
    assert [False, False, False, False, True, False] == too_new.tolist()
    assert not list(limits(SINK).untimely(stamps, CLOCKS))


@pytest.mark.parametrize("wrong", [-DAY_MS, DAY_MS])
def test_a_wrong_clock_refuses_no_good_record(wrong: int) -> None:
    """What only one clock finds too old or too new is left to Kafka."""
    topic = limits(Destination("clean", 2, 1_000_000, before=HOUR, after=HOUR))
    stamps = np.array([NOW - DAY_MS // 2, NOW, NOW + DAY_MS // 2], np.int64)
    clocks = Now(*sorted([NOW, NOW + wrong]))

    (_, too_old), (_, too_new) = topic.untimely(stamps, clocks)
    assert [wrong > 0, False, False] == too_old.tolist()
    assert [False, False, wrong < 0] == too_new.tolist()
