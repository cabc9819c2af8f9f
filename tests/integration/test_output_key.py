"""The key of a line, and the partition that results from it, on a real Kafka and with both backends."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from app.embedded.broker import Cluster
from app.kafka.backend import Backend
from app.model import Guarantee, Partitioner
from tests.conftest import Topics
from tests.independent import Record, Written, cleanse, cleansed, line, produce, values
from tests.integration.tasks import BOTH_BACKENDS, BOTH_GUARANTEES, make_pipeline

SINKS = 5


def murmur2(key: bytes) -> int:
    """Hash a key like org.apache.kafka.common.utils.Utils.murmur2, on unsigned numbers."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if key[whole:]:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_of(key: bytes) -> int:
    """Return the partition that Java's producer chooses for a key: BuiltInPartitioner.partitionForKey."""
    return (murmur2(key) & 0x7FFFFFFF) % SINKS


def test_the_hash_is_that_of_java() -> None:
    """The values are from Kafka's own test (UtilsTest.testMurmur2)."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    known |= {b"a-little-bit-longer-string": -1486304829, b"abc": 479470107}

    assert {key: value & 0xFFFFFFFF for key, value in known.items()} == {key: murmur2(key) for key in known}


def of_house(number: int, houseid: bytes) -> bytes:
    """Make a valid line of this house."""
    return line(number).replace(b"<<<!>>>238<<<!>>>", b"<<<!>>>%b<<<!>>>" % houseid)


def house(record: Record) -> bytes:
    return (record.value or b"").partition(b"|")[0]


def sorted_by_house(lines: Sequence[bytes | None]) -> dict[bytes, list[bytes]]:
    houses: dict[bytes, list[bytes]] = {}
    for each in filter(None, lines):
        houses.setdefault(each.partition(b"|")[0], []).append(each)
    return houses


@BOTH_GUARANTEES
@BOTH_BACKENDS
def test_lines_go_where_their_key_says(broker: Cluster, topics: Topics, guarantee: Guarantee, backend: Backend) -> None:
    """Each line is keyed by its house and in the partition of a Java producer; each house keeps its source order."""
    pipeline = make_pipeline(
        broker.bootstrap, topics, guarantee, sink=SINKS, sink_key="houseid", sink_partitioner=Partitioner.KEY
    )
    pipeline.backend = backend
    houses = [b"%d" % number**3 for number in range(97)] + ["ü €".encode()]
    choose = random.Random(12)
    good = [(number, choose.choice(houses)) for number in range(3_000) if number % 10]
    lines = [raw for each in good for raw in ([b"rubbish"] if each[0] % 10 == 1 else []) + [of_house(*each)]]
    produce(broker.bootstrap, pipeline.source, [Written(each, b"source key") for each in lines])

    (receipt,) = pipeline.run().values()

    found = pipeline.cleansed()
    assert (2_700, {"no_marker": 300}) == (receipt.out, dict(receipt.dead))
    assert [house(each) for each in found] == [each.key for each in found]
    assert [partition_of(each.key or b"") for each in found] == [each.partition for each in found]
    assert SINKS == len(Counter(each.partition for each in found))
    written = [cleansed(number).replace(b"238", houseid, 1) for number, houseid in good]
    assert sorted_by_house(written) == sorted_by_house(values(found))
    assert {b"source key"} == {each.key for each in pipeline.dead_letters()}


@BOTH_BACKENDS
def test_a_key_alone_moves_no_line(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """With a field as the key and the source's partitioner, source partition p still maps to p mod n, in order."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=2, sink=SINKS, sink_key="srcip")
    pipeline.backend = backend
    produce(broker.bootstrap, pipeline.source, [Written(line(number, 1), None, partition=1) for number in range(50)])

    pipeline.run()

    found = pipeline.cleansed()
    assert [(b"58.223.1.112", 1)] * 50 == [(each.key, each.partition) for each in found]
    assert [cleanse(line(number, 1)) for number in range(50)] == values(found)


@BOTH_BACKENDS
def test_the_keys_of_records_can_say_where_lines_go(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """An empty key is a key. Lines without a key are spread."""
    pipeline = make_pipeline(broker.bootstrap, topics, sink=SINKS, sink_partitioner=Partitioner.KEY)
    pipeline.backend = backend
    keys = [None, b"", b"k", b"\x00\xff|", b"a longer key than four bytes"]
    produce(broker.bootstrap, pipeline.source, [Written(line(number), key) for number, key in enumerate(keys)])

    pipeline.run()

    found = {each.key: each.partition for each in pipeline.cleansed()}
    assert {key: partition_of(key) for key in keys if key is not None} == {
        key: partition for key, partition in found.items() if key is not None
    }
    assert None in found


def test_a_compacted_sink_takes_lines_whose_records_have_no_key(broker: Cluster, topics: Topics) -> None:
    """A compacted sink accepts lines that have a key, even if their records do not."""
    pipeline = make_pipeline(broker.bootstrap, topics, sink={"cleanup.policy": "compact"}, sink_key="houseid")
    produce(broker.bootstrap, pipeline.source, [Written(line(0)), Written(b"rubbish", b"k")])

    (receipt,) = pipeline.run().values()

    assert (1, {"no_marker": 1}) == (receipt.out, dict(receipt.dead))
    assert [b"238"] == [each.key for each in pipeline.cleansed()]


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_two_source_partitions_meet_in_one(broker: Cluster, topics: Topics, guarantee: Guarantee) -> None:
    """Lines of one house from two source partitions share a partition and keep each source's order."""
    pipeline = make_pipeline(
        broker.bootstrap, topics, guarantee, source=2, sink=SINKS, sink_key="houseid", sink_partitioner=Partitioner.KEY
    )
    sources = [[line(number, partition) for number in range(200)] for partition in range(2)]
    for partition, lines in enumerate(sources):
        produce(broker.bootstrap, pipeline.source, [Written(each, partition=partition) for each in lines])

    pipeline.run()

    found = pipeline.cleansed()
    assert {partition_of(b"238")} == {each.partition for each in found}
    for partition, lines in enumerate(sources):
        mark = b"http://x.cn/%d/" % partition
        assert [cleanse(each) for each in lines] == [each for each in values(found) if mark in (each or b"")]
