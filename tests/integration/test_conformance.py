"""The behaviour that both backends, `plain` and `bulk`, must share on a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.embedded.broker import Cluster
from app.errors import Fenced, OffsetMoved, Transient
from app.headers import Headers
from app.kafka.backend import PLAIN, Backend, best_backend, why_not_bulk
from app.kafka.clients import TaskClients
from app.kafka.consumer import TaskConsumer
from app.kafka.fence import KafkaFence
from app.model import Guarantee, Partition, Receipt
from app.offsets.metadata import OffsetMetadata
from app.records import Chunk, Lines, OutgoingRecord
from tests.conftest import Topics
from tests.fakes.parsers import WRONG, Wrong
from tests.independent import Record, Written, cleansed, committed, line, produce, read, values
from tests.integration.tasks import BOTH_BACKENDS, BOTH_GUARANTEES, LARGE, Pipeline, alter, make_pipeline, noise
from tests.integration.writers import make_lines, writing
from tests.support.waiting import until

MEBIBYTE = 1 << 20


def test_the_bulk_backend_is_available_here() -> None:
    """The test environment provides everything that bulk needs, so the `bulk` cases really test it."""
    assert "" == why_not_bulk({})
    assert "bulk" == best_backend({}).name


@contextmanager
def consuming(pipeline: Pipeline, backend: Backend, *starts: tuple[Partition, int]) -> Iterator[TaskConsumer]:
    """Open a consumer at these offsets, without a task."""
    consumer = TaskClients(pipeline.task_config, backend).consumer()
    try:
        for partition, offset in starts:
            consumer.start(partition, offset)
        yield consumer
    finally:
        consumer.close()


def chunks_until(consumer: TaskConsumer, enough: Callable[[list[Chunk]], object]) -> list[Chunk]:
    """Poll until there are enough chunks."""
    chunks: list[Chunk] = []

    def poll() -> object:
        chunk = consumer.poll(0.05)
        if chunk is not None:
            chunks.append(chunk)
        return enough(chunks)

    until(poll, "chunks")
    return chunks


def ended(chunks: list[Chunk]) -> list[tuple[Partition, int]]:
    """Return the ends that were reported."""
    return [end for chunk in chunks for end in chunk.ends]


@BOTH_BACKENDS
def test_null_and_empty_stay_distinct(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """Null and empty values and keys stay distinct; offsets and both kinds of timestamps are read as stored."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=2)
    pairs = [(v, k) for v in (None, b"", b"v", b"\x00\xff") for k in (None, b"", b"k")]
    produce(broker.bootstrap, pipeline.source, [Written(*pair, timestamp=n + 1) for n, pair in enumerate(pairs)])
    appended = make_pipeline(broker.bootstrap, topics, source={"message.timestamp.type": "LogAppendTime"})
    produce(broker.bootstrap, appended.source, [Written(b"v")])

    with consuming(
        pipeline, backend, (Partition(pipeline.source, 0), 0), (Partition(appended.source, 0), 0)
    ) as consumer:
        chunks = chunks_until(consumer, lambda chunks: len(ended(chunks)) == 2)

    rows = [
        (chunk.partitions[source], offset, value, key, timestamp)
        for chunk in chunks
        for source, offset, value, key, timestamp in zip(
            chunk.sources.tolist(),
            chunk.offsets.tolist(),
            chunk.values.to_pylist(),
            chunk.keys.to_pylist(),
            chunk.timestamps.tolist(),
            strict=True,
        )
    ]
    (stored,) = read(broker.bootstrap, appended.source)
    expected = [(Partition(pipeline.source, 0), n, *pair, n + 1) for n, pair in enumerate(pairs)]
    expected.append((Partition(appended.source, 0), 0, b"v", None, stored.timestamp))
    assert sorted(expected, key=str) == sorted(rows, key=str)


@BOTH_BACKENDS
def test_a_record_without_a_timestamp(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """A record without a timestamp is read as such, and its cleansed line gets the time of writing."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    pipeline.backend = backend
    produce(broker.bootstrap, pipeline.source, [Written(line(0), timestamp=-1)])
    (source,) = read(broker.bootstrap, pipeline.source)

    pipeline.run()

    (record,) = pipeline.cleansed()
    assert -1 == source.timestamp
    assert record.timestamp > 1_700_000_000_000


@BOTH_BACKENDS
def test_headers_are_readable_until_the_next_poll(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """The headers of each row are complete and in order, including repeated, null and empty ones."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    headers = [("h", b"1"), ("h", b"2"), ("null", None), ("empty", b""), ("binary", b"\xff\x00"), ("ü", b"x")]
    produce(broker.bootstrap, pipeline.source, [Written(b"v", headers=headers if n % 2 else []) for n in range(10)])

    with consuming(pipeline, backend, (Partition(pipeline.source, 0), 0)) as consumer:
        found: list[object] = []

        def all_found() -> bool:
            if chunk := consumer.poll(0.05):
                found.extend(list(chunk.headers(row)) for row in range(len(chunk)))
            return len(found) == 10

        until(all_found, "ten records")

    assert [headers if n % 2 else [] for n in range(10)] == found


def test_headers_are_gone_after_the_next_poll(broker: Cluster, topics: Topics) -> None:
    """Reading headers from a bulk chunk after the next poll raises an error instead of reading freed memory."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    produce(broker.bootstrap, pipeline.source, [Written(b"v", headers=[("h", b"1")])])

    with consuming(pipeline, best_backend({}), (Partition(pipeline.source, 0), 0)) as consumer:
        first = next(chunk for chunk in chunks_until(consumer, lambda chunks: any(map(len, chunks))) if len(chunk))
        consumer.poll(0)

        with pytest.raises(RuntimeError, match="until the next poll"):
            first.headers(0)


@BOTH_BACKENDS
def test_ends_and_gaps(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """A consumer reports each partition end that it reaches, with the offset after the last record."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    partition = Partition(pipeline.source, 0)
    produce(broker.bootstrap, pipeline.source, [Written(b"1"), Written(b"2")])

    with consuming(pipeline, backend, (partition, 0)) as consumer:
        first = chunks_until(consumer, ended)
        produce(broker.bootstrap, pipeline.source, [Written(b"3")])
        second = chunks_until(consumer, ended)

    assert [(partition, 2)] == ended(first)
    assert [(partition, 3)] == ended(second)
    assert 3 == sum(map(len, first + second))


@BOTH_BACKENDS
def test_an_offset_that_is_not_there(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """An offset outside the partition fails only that partition and yields no records."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=2)
    produce(broker.bootstrap, pipeline.source, [Written(b"v", partition=1)])
    gone, good = Partition(pipeline.source, 0), Partition(pipeline.source, 1)

    with consuming(pipeline, backend, (gone, 1_000), (good, 0)) as consumer:
        chunks = chunks_until(consumer, lambda chunks: ended(chunks) and any(chunk.failures for chunk in chunks))

    failures = [failure for chunk in chunks for failure in chunk.failures]
    assert {(OffsetMoved, gone)} == {(type(failure), failure.partition) for failure in failures}
    assert [(good, 1)] == ended(chunks)
    assert 1 == sum(map(len, chunks))


@BOTH_BACKENDS
def test_an_unreachable_broker(
    broker: Cluster, topics: Topics, backend: Backend, capfd: pytest.CaptureFixture[str]
) -> None:
    """A consumer without a broker returns no records and no failures, and prints nothing."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    task_config = replace(
        pipeline.task_config,
        kafka={"bootstrap.servers": "127.0.0.1:9", "reconnect.backoff.ms": "20", "debug": "all", "log_level": "7"},
    )
    consumer = TaskClients(task_config, backend).consumer()
    consumer.start(Partition(pipeline.source, 0), 0)

    polled = [consumer.poll(0.05) for _ in range(20)]
    consumer.close()

    assert 0 == sum(len(chunk) + len(chunk.failures) for chunk in polled if chunk is not None)
    assert ("", "") == capfd.readouterr()


@BOTH_BACKENDS
def test_rows_of_a_partition_are_contiguous(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """Each record of several topics and partitions stays in its partition, in order."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=5, sources=2)
    places = [Partition(topic, number) for topic in pipeline.sources for number in range(5)]
    for topic in pipeline.sources:
        for begin in range(0, 1_000, 50):
            produce(
                broker.bootstrap,
                topic,
                [
                    Written(b"%s %d %d" % (topic.encode(), p, begin + n), partition=p)
                    for p in range(5)
                    for n in range(50)
                ],
            )

    with consuming(pipeline, backend, *((place, 0) for place in places)) as consumer:
        chunks = chunks_until(consumer, lambda chunks: len(ended(chunks)) >= 10)

    found: dict[Partition, list[bytes | None]] = {place: [] for place in places}
    for chunk in chunks:
        for place, begin, end in chunk.by_partition():
            found[place] += chunk.values.slice(begin, end - begin).to_pylist()
    for place in places:
        assert [b"%s %d %d" % (place.topic.encode(), place.number, n) for n in range(1_000)] == found[place]


@BOTH_BACKENDS
def test_large_records_bound_a_chunk(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """Records of 1 MiB are read whole, and the chunks that follow contain fewer records."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=LARGE)
    big = [noise(MEBIBYTE + n, seed=n) for n in range(40)]
    produce(broker.bootstrap, pipeline.source, [Written(value) for value in big])

    with consuming(pipeline, backend, (Partition(pipeline.source, 0), 0)) as consumer:
        chunks = chunks_until(consumer, ended)

    assert big == [value for chunk in chunks for value in chunk.values.to_pylist()]
    assert consumer.batch_size <= 8 < consumer.max_records


@BOTH_BACKENDS
def test_a_full_chunk_is_marked_as_full(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """A chunk is full if it has as many records as requested, and only then."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    produce(broker.bootstrap, pipeline.source, [Written(b"%d" % n) for n in range(10)])

    with consuming(pipeline, backend, (Partition(pipeline.source, 0), 0)) as consumer:
        consumer.batch_size = 4
        first = chunks_until(consumer, len)
        rest = chunks_until(consumer, ended)

    assert [(4, True)] == [(len(chunk), chunk.full) for chunk in first]
    assert not rest[-1].full


@BOTH_BACKENDS
def test_a_partition_that_starts_and_stops_all_the_time(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """A partition can pause and resume rapidly, although librdkafka refuses a seek during a stop."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    partition = Partition(pipeline.source, 0)
    produce(broker.bootstrap, pipeline.source, [Written(b"%d" % n) for n in range(500)])

    with consuming(pipeline, backend) as consumer:
        for offset in range(400):
            consumer.start(partition, offset, 0)
            consumer.poll(0.005)
            consumer.stop(partition)
        consumer.start(partition, 450, 0)
        chunks = chunks_until(consumer, lambda found: sum(map(len, found)) >= 50)

    assert list(range(450, 500)) == [int(offset) for chunk in chunks for offset in chunk.offsets]


@BOTH_BACKENDS
def test_a_consumer_that_is_closed(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """Polling a closed consumer raises an error and does not crash. Closing it twice is harmless."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    consumer = TaskClients(pipeline.task_config, backend).consumer()
    consumer.close()
    consumer.close()

    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


@BOTH_BACKENDS
@BOTH_GUARANTEES
def test_a_writer_keeps_every_field(broker: Cluster, topics: Topics, backend: Backend, guarantee: Guarantee) -> None:
    """Lines and dead letters keep key, timestamp, headers and order; null and empty stay distinct, also in slices."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee)
    texts, keys = [b"lost", b"a", b"", None, b"d", b"lost"], [b"lost", None, b"", b"k", b"\x00"]
    lines = Lines(
        pa.array(texts, pa.binary()).slice(1, 4),
        np.array([1, 2, 3, 4], np.int32),
        pa.array([b"lost", *keys], pa.binary()).slice(1),
        np.array([9, 1, 2, 3, 4]),
    )
    headers: list[Headers] = [[], [("h", b"1"), ("null", None)], [("empty", b"")], []]
    dead_letters = [
        OutgoingRecord(key, value, each, 5) for key, value, each in zip(keys[1:], texts[1:5], headers, strict=True)
    ]

    with writing(pipeline, backend) as writer:
        writer.open()
        writer.send(lines)
        writer.send_dead_letters(dead_letters)
        writer.commit(7, "metadata")

    found = [(record.value, record.key, record.timestamp) for record in pipeline.cleansed()]
    assert list(zip(texts[1:5], keys[1:], [1, 2, 3, 4], strict=True)) == found
    begins = [("winnow.transaction", f"winnow/{pipeline.group}/{pipeline.source}/0@0".encode())]
    marked = begins if guarantee is Guarantee.EXACTLY_ONCE else []
    assert [marked, [], [], []] == [list(record.headers) for record in pipeline.cleansed()]
    buried = [(record.value, record.key, list(record.headers), record.timestamp) for record in pipeline.dead_letters()]
    assert list(zip(texts[1:5], keys[1:], headers, [5] * 4, strict=True)) == buried
    assert {(pipeline.source, 0): 7} == committed(broker.bootstrap, pipeline.group, pipeline.source)


@BOTH_BACKENDS
@BOTH_GUARANTEES
def test_lines_keep_headers(broker: Cluster, topics: Topics, backend: Backend, guarantee: Guarantee) -> None:
    """A line keeps the source record's headers in order, without null ones."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee)
    columns = {"host": [b"lost", b"a", None, b""], "ü": [None, None, b"\x00\xff", b"x" * 1_000]}
    lines = replace(
        make_lines(b"1", b"2", b"3", b"4"),
        rows=np.array([0, 2, 3, 3], np.int32),
        keys=pa.array([b"k"] * 4, pa.binary()),
        timestamps=np.arange(1, 5),
        headers=[(name, pa.array(column, pa.binary())) for name, column in columns.items()],
    )

    with writing(pipeline, backend) as writer:
        writer.open()
        writer.send(replace(lines, values=lines.values.slice(1), rows=lines.rows[1:]))
        writer.send(make_lines(b"5"))
        writer.commit(7, "")

    last = [("host", b""), ("ü", b"x" * 1_000)]
    expected = [(b"2", [("ü", b"\x00\xff")]), (b"3", last), (b"4", last), (b"5", [])]
    assert expected == [(record.value, record.kept_headers) for record in pipeline.cleansed()]


@BOTH_BACKENDS
@BOTH_GUARANTEES
def test_a_full_queue(broker: Cluster, topics: Topics, backend: Backend, guarantee: Guarantee) -> None:
    """If the queue fills up inside a chunk, a writer waits and continues with the next record."""
    kafka = {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": "100", "linger.ms": "1"}
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee)
    with writing(replace_kafka(pipeline, kafka), backend) as writer:
        writer.open()
        writer.send(make_lines(*(b"%d" % n for n in range(1_000))))
        writer.send_dead_letters([OutgoingRecord(b"k", b"%d" % n, [("h", b"v")], 1) for n in range(1_000)])
        writer.commit(1_000, "")

    assert [b"%d" % n for n in range(1_000)] == values(pipeline.cleansed()) == values(pipeline.dead_letters())


def replace_kafka(pipeline: Pipeline, kafka: dict[str, str]) -> Pipeline:
    """Replace the settings of the Kafka clients."""
    pipeline.changes["kafka"] = kafka
    return pipeline


@BOTH_BACKENDS
def test_a_queue_that_stays_full(
    broker: Cluster, topics: Topics, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing can be delivered, sending returns soon, and a writer eventually gives up on the rest."""
    monkeypatch.setattr("app.kafka.writers.FULL_QUEUE_SECONDS", 0.3)
    pipeline = make_pipeline(broker.bootstrap, topics, Guarantee.AT_LEAST_ONCE)
    task_config = replace(
        pipeline.task_config, kafka={"bootstrap.servers": "127.0.0.1:9", "queue.buffering.max.messages": "10"}
    )
    clients = TaskClients(task_config, backend)
    writer = clients.writer(Partition(pipeline.source, 0), clients.offsets())

    writer.send(make_lines(*[b"x"] * 100))
    assert writer.full
    with pytest.raises(Transient, match="nothing could be delivered"):
        writer.send_rest()
    writer.discard()


@BOTH_BACKENDS
def test_fenced_in_the_middle(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """A writer that is fenced while it sends raises Fenced, and readers see none of its records."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    fence = KafkaFence({"bootstrap.servers": broker.bootstrap}, pipeline.group, 60, pipeline.dead)
    with writing(pipeline, backend) as writer:
        writer.open()
        writer.send(make_lines(b"before"))
        until(lambda: fence.fence([Partition(pipeline.source, 0)]), "the fence to reach Kafka")

        def send_until_fenced() -> None:
            until(lambda: writer.send(make_lines(*[b"after"] * 100)), "the fence")

        with pytest.raises(Fenced):
            send_until_fenced()

    assert [] == pipeline.cleansed()


@BOTH_BACKENDS
@pytest.mark.parametrize("what", ["line", "dead_letter"])
@BOTH_GUARANTEES
def test_an_undelivered_record_fails_the_commit(
    broker: Cluster, topics: Topics, backend: Backend, guarantee: Guarantee, what: str
) -> None:
    """If the broker refuses one record among many, the commit fails and the offset does not move."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, sink=2)
    with writing(pipeline, backend) as writer:
        writer.open()
        writer.commit(3, "")
        alter(broker.bootstrap, pipeline.sink if what == "line" else pipeline.dead, max_message_bytes=1_000)
        writer.send(make_lines(b"good"))
        big = noise(5_000)
        if what == "line":
            writer.send(make_lines(big, b"good"))
        else:
            writer.send_dead_letters([OutgoingRecord(None, big, [("h", b"v")], 1)])

        with pytest.raises(Transient):
            writer.commit(6, "")

    assert {(pipeline.source, 0): 3} == committed(broker.bootstrap, pipeline.group, pipeline.source)


@BOTH_BACKENDS
def test_a_sender_that_is_closed(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """Discarding a writer twice is harmless."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    with writing(pipeline, backend) as writer:
        writer.open()
        writer.send(make_lines(b"x"))
        writer.discard()

    assert [] == pipeline.cleansed()


RAW = st.one_of(
    st.none(),
    st.binary(max_size=60),
    st.builds(lambda n, cut: line(n)[: len(line(n)) - cut], st.integers(0, 999), st.integers(0, 3)),
    st.builds(lambda n, url: line(n).replace(b"http://x.cn/", url), st.integers(0, 999), st.binary(max_size=40)),
)
HEADERS = st.lists(
    st.tuples(st.text(min_size=1, max_size=3).filter(lambda name: "\0" not in name), st.none() | st.binary(max_size=3)),
    max_size=2,
)
RECORDS = st.lists(
    st.builds(
        Written,
        RAW,
        st.none() | st.binary(max_size=8),
        st.integers(0, 2),
        st.integers(1, 1_700_000_000_000),  # a broker rejects timestamps in the future
        HEADERS,
    ),
    min_size=1,
    max_size=300,
)


Shown = list[tuple[Any, ...]]
Outcome = tuple[Shown, Shown, Mapping[tuple[str, int], int], Mapping[Partition, Receipt]]
"""The sink, the dead letters, the committed offsets and the receipts of a task."""


def test_bulk_does_what_plain_does(broker: Cluster, topics: Topics) -> None:
    """Both backends give random records the same values, keys, timestamps, partitions, dead letters and offsets."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=3, sink=2)

    # Without shrinking: each example takes seconds on a real broker.
    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(RECORDS)
    def check(records: list[Written]) -> None:
        produce(broker.bootstrap, pipeline.source, records)
        outcomes = [outcome(broker, topics, pipeline, backend) for backend in (PLAIN, best_backend({}))]
        assert outcomes[0] == outcomes[1]

    check()


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_parser_does_the_same_on_both_backends(broker: Cluster, topics: Topics, what: str) -> None:
    """Whatever a user's parser returns, both backends produce the same valid lines and dead letters."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=2)
    sources = [line(0), b"rubbish", line(1), line(2), None, line(3)]
    produce(broker.bootstrap, pipeline.source, [Written(value, b"k", n % 2, n) for n, value in enumerate(sources, 1)])
    pipeline.parser = Wrong(WRONG[what])

    plain, bulk = (outcome(broker, topics, pipeline, backend) for backend in (PLAIN, best_backend({})))

    assert plain == bulk
    sink, dead, offsets, _ = plain
    assert len(sources) == len(sink) + len(dead)
    assert {each[1] for each in sink} <= {cleansed(n) for n in range(4)}
    assert {each[1] for each in dead} <= set(sources)
    assert {(pipeline.source, 0): 3, (pipeline.source, 1): 3} == offsets


def without_times(receipt: Receipt) -> Receipt:
    """Return a receipt without its times and its number of transactions, which differ between runs."""
    metadata = OffsetMetadata.parse(receipt.metadata)
    counts = replace(metadata.counts, committed=0, aborted=0)
    return replace(receipt, reopened=0, metadata=str(replace(metadata, counts=counts, report=None)))


def outcome(broker: Cluster, topics: Topics, like: Pipeline, backend: Backend) -> Outcome:
    """Cleanse a source with its own group and topics."""
    pipeline = make_pipeline(broker.bootstrap, topics, sink=2)
    pipeline.sources, pipeline.backend, pipeline.parser = like.sources, backend, like.parser
    receipts = pipeline.run()
    offsets = committed(broker.bootstrap, pipeline.group, pipeline.source)
    # A slow commit may replace the producer on either backend.
    done = {partition: without_times(receipt) for partition, receipt in receipts.items()}
    return shown(pipeline.cleansed()), shown(pipeline.dead_letters()), offsets, done


def shown(records: list[Record]) -> Shown:
    """
    Return everything except offsets, which commit markers shift, and transaction starts.

    Two sources that share a sink partition may interleave.
    """
    return sorted(((r.partition, r.value, r.key, r.timestamp, tuple(r.kept_headers)) for r in records), key=repr)
