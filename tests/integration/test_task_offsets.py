"""The offsets of a task on a real Kafka: gaps, control records, ends, several topics and partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from app.embedded.broker import Broker, Cluster
from app.kafka.fence import KafkaFence
from app.kafka.offsets import KafkaGroupOffsets
from app.model import Guarantee, OffsetRange, Outcome, Partition
from app.offsets.contract import StoreContext
from tests import independent
from tests.conftest import Topics
from tests.independent import Written, cleansed, ends, line, produce, read, values
from tests.integration.tasks import BOTH_GUARANTEES, PLACEHOLDER, Pipeline, make_pipeline
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.usefixtures("patient")


def lines(*numbers: int, partition: int = 0) -> list[Written]:
    """Make numbered valid records of a partition. The key of each is its number."""
    return [Written(line(n, partition), b"%d" % n, partition) for n in numbers]


class Upstream:
    """A transactional producer for a source topic, like an exactly-once Flume or Kafka Streams."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        """Open the producer."""
        own: dict[str, str | int] = {"transactional.id": topic, "transaction.timeout.ms": 600_000, "log_level": 0}
        self._producer, self._topic = Producer({"bootstrap.servers": bootstrap, **own}), topic
        self._producer.init_transactions(PATIENCE)

    def committed(self, *numbers: int) -> None:
        """Write lines in one transaction and commit it."""
        self._write(numbers)
        self.commit()

    def aborted(self, *numbers: int) -> None:
        """Write lines in one transaction and abort it."""
        self._write(numbers)
        self._producer.abort_transaction(PATIENCE)

    def open(self, *numbers: int) -> None:
        """Write lines in a transaction that stays open until `commit`."""
        self._write(numbers)

    def commit(self) -> None:
        self._producer.commit_transaction(PATIENCE)

    def _write(self, numbers: tuple[int, ...]) -> None:
        self._producer.begin_transaction()
        independent.send(self._producer, self._topic, lines(*numbers))
        assert self._producer.flush(PATIENCE) == 0


@BOTH_GUARANTEES
def test_aborted_and_control_records(
    broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee
) -> None:
    """Aborted records are not cleansed, and the committed offset is after the last control record."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, centre=centre)
    upstream = Upstream(broker.bootstrap, pipeline.source)
    upstream.aborted(90, 91)
    upstream.committed(0, 1)
    upstream.aborted(92)
    upstream.committed(2)
    upstream.aborted(93, 94, 95)

    pipeline.run()

    assert [cleansed(0), cleansed(1), cleansed(2)] == values(pipeline.cleansed())
    assert {(pipeline.source, 0): 0} == pipeline.lag()


def test_an_open_upstream_transaction_is_waited_for(broker: Cluster, topics: Topics, centre: Broker | None) -> None:
    """Records after an open transaction are not processed until it ends."""
    pipeline = make_pipeline(broker.bootstrap, topics, centre=centre)
    upstream = Upstream(broker.bootstrap, pipeline.source)
    upstream.committed(0)
    upstream.open(1, 2)
    produce(broker.bootstrap, pipeline.source, lines(3))
    pipeline.run(*pipeline.ranges(end=2))
    before = values(pipeline.cleansed())
    upstream.commit()

    pipeline.run()

    assert [cleansed(0)] == before
    assert [cleansed(n) for n in range(4)] == values(pipeline.cleansed())


@pytest.fixture
def eager_cleaner(broker: Cluster) -> Iterator[None]:
    """Make the broker compact at once instead of every 15 s."""
    admin = independent.client(broker.bootstrap)
    servers = admin.list_topics(timeout=PATIENCE).brokers

    def every(milliseconds: str) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", milliseconds, incremental_operation=AlterConfigOpType.SET)
        resources = [ConfigResource(ResourceType.BROKER, str(n), incremental_configs=[entry]) for n in servers]
        for altered in admin.incremental_alter_configs(resources).values():
            altered.result(PATIENCE)

    every("50")
    yield
    every("15000")


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1",
}


@pytest.mark.usefixtures("eager_cleaner")
def test_compacted_gaps(broker: Cluster, topics: Topics, centre: Broker | None) -> None:
    """Records removed by compaction are neither awaited nor counted, and the committed offset is the end."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=COMPACTED, centre=centre)
    keys = [b"a", b"b", b"c", b"a", b"b", b"d", b"a", b"e"]
    for n, key in enumerate(keys):  # timestamps ten seconds apart: one segment each
        produce(broker.bootstrap, pipeline.source, [Written(line(n), key, timestamp=1_510_464_542_000 + n * 10_000)])
    until(lambda: len(read(broker.bootstrap, pipeline.source)) == 5, "compaction")

    (receipt,) = pipeline.run().values()

    assert [cleansed(n) for n in (2, 4, 5, 6, 7)] == values(pipeline.cleansed())
    assert (5, 5) == (receipt.records, receipt.out)
    assert {(pipeline.source, 0): 8} == pipeline.committed()


def test_deleted_beginning(broker: Cluster, topics: Topics, centre: Broker | None) -> None:
    """A partition whose first records were deleted is read from its first remaining offset, which may be its end."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=2, centre=centre)
    produce(broker.bootstrap, pipeline.source, [*lines(*range(5)), *lines(0, 1, partition=1)])
    gone = [TopicPartition(pipeline.source, 0, 3), TopicPartition(pipeline.source, 1, 2)]
    for deleted in independent.client(broker.bootstrap).delete_records(gone).values():
        deleted.result(PATIENCE)

    pipeline.run()

    assert [cleansed(3), cleansed(4)] == values(pipeline.cleansed())
    assert {(pipeline.source, 0): 5, (pipeline.source, 1): 2} == pipeline.committed()


@BOTH_GUARANTEES
def test_several_topics_and_partitions(
    broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee
) -> None:
    """One task keeps three topics of four partitions apart: partition p maps to sink partition p mod 3, in order."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, source=4, sources=3, sink=3, centre=centre)
    for topic in pipeline.sources:
        for partition in range(4):
            numbers = range(50 * partition)  # one partition of each topic is empty
            given = [one._replace(key=topic.encode()) for one in lines(*numbers, partition=partition)]
            produce(broker.bootstrap, topic, given)

    receipts = pipeline.run()

    records = pipeline.cleansed()
    for topic in pipeline.sources:
        for partition in range(4):
            mark = b"/%d/" % partition
            mine = [one for one in records if one.key == topic.encode() and mark in (one.value or b"")]
            assert [cleansed(n, partition) for n in range(50 * partition)] == values(mine)
            assert {partition % 3} >= {one.partition for one in mine}
            assert 50 * partition == receipts[Partition(topic, partition)].records
    assert 3 * 300 == len(records)
    assert {0} == set(pipeline.lag().values())
    assert 12 == len(pipeline.lag())


@BOTH_GUARANTEES
def test_only_rejects(broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee) -> None:
    """All 5,000 bad lines of a partition go to the dead letters in order, and its offset advances."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, centre=centre)
    bad = [b"rubbish %d" % n for n in range(5_000)]
    produce(broker.bootstrap, pipeline.source, [Written(value) for value in bad])

    (receipt,) = pipeline.run().values()

    assert bad == values(pipeline.dead_letters())
    assert [] == pipeline.cleansed()
    assert {"no_marker": 5_000} == dict(receipt.dead)
    assert {(pipeline.source, 0): 0} == pipeline.lag()


@BOTH_GUARANTEES
@pytest.mark.parametrize("end", [0, 7, 19_999])
def test_the_end_is_exact(
    broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee, end: int
) -> None:
    """A task processes only the records before the agreed end, and the next task starts there."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, centre=centre)
    source = [*lines(*range(20_000))]
    source[3::1_000] = [Written(b"bad %d" % n) for n in range(20)]
    produce(broker.bootstrap, pipeline.source, source)

    pipeline.run(*pipeline.ranges(end=end))
    at_end = pipeline.committed()
    first = len(pipeline.cleansed()) + len(pipeline.dead_letters())
    pipeline.run()

    assert {(pipeline.source, 0): end} == at_end
    assert end == first
    assert [cleansed(n) for n in range(20_000) if n % 1_000 != 3] == values(pipeline.cleansed())
    assert [b"bad %d" % n for n in range(20)] == values(pipeline.dead_letters())


@BOTH_GUARANTEES
def test_the_committed_offset_wins(
    broker: Cluster, topics: Topics, centre: Broker | None, guarantee: Guarantee
) -> None:
    """A task whose plan is older than the committed offset starts from the committed offset."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, centre=centre)
    produce(broker.bootstrap, pipeline.source, lines(*range(10)))
    old = pipeline.ranges()
    pipeline.commit({(pipeline.source, 0): 6})

    (receipt,) = pipeline.run(*old).values()

    assert [cleansed(n) for n in range(6, 10)] == values(pipeline.cleansed())
    assert (6, 10, 4) == (receipt.start, receipt.end, receipt.records)


def test_an_offset_that_went_back_is_planned_again(broker: Cluster, topics: Topics, centre: Broker | None) -> None:
    """If the group was reset after planning, the task leaves the partition to the next plan and reports why."""
    pipeline = make_pipeline(broker.bootstrap, topics, centre=centre)
    produce(broker.bootstrap, pipeline.source, lines(*range(10)))
    pipeline.run()
    plan = OffsetRange(Partition(pipeline.source, 0), committed=10, start=10, end=10)
    pipeline.commit({(pipeline.source, 0): 4})

    (receipt,) = pipeline.run(plan).values()

    assert Outcome.FAILED is receipt.outcome
    assert "went back to 4" in receipt.error
    assert {(pipeline.source, 0): 4} == pipeline.committed()


def settle(pipeline: Pipeline, count: int) -> None:
    """Wait until the running task has cleansed this many lines."""
    until(lambda: len(pipeline.cleansed()) >= count, f"{count} lines")


def test_a_second_task_fences_the_first(broker: Cluster, topics: Topics, centre: Broker | None) -> None:
    """The last task to open a partition owns it. The first reports FENCED, and no record is lost or duplicated."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=2, sink=2, centre=centre)
    with independent.Feeder(broker.bootstrap, pipeline.source, 2, per_second=1_000) as feeder:
        ranges = tuple(OffsetRange(Partition(pipeline.source, p), None, 0) for p in range(2))
        with pipeline.running(*ranges) as first:
            settle(pipeline, 100)
            with pipeline.running(*ranges):
                assert first.ended()
                settle(pipeline, len(pipeline.cleansed()) + 100)
    pipeline.run()

    assert Outcome.FENCED in [receipt.outcome for receipt in first.receipts.values()]
    assert {""} == {receipt.error for receipt in first.receipts.values()}
    for partition, count in feeder.written.items():
        assert [cleansed(n, partition) for n in range(count)] == values(pipeline.cleansed(), partition)


def test_the_fence_of_the_control_partition_ends_an_idle_task(
    broker: Cluster, topics: Topics, centre: Broker | None
) -> None:
    """An idle task ends when its control partition is fenced, although none has records. Its others end cleanly."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=3, centre=centre)
    ranges = tuple(OffsetRange(Partition(pipeline.source, p), None, 0) for p in (1, 0, 2))
    with pipeline.running(*ranges) as task:
        KafkaFence({"bootstrap.servers": pipeline.output}, pipeline.group, 60, pipeline.dead).fence(
            [Partition(pipeline.source, 1)]
        )

        assert task.ended()
    outcomes = [receipt.outcome for receipt in task.receipts.values()]
    assert [Outcome.FENCED, Outcome.DONE, Outcome.DONE] == outcomes


def test_an_idle_partition_renews_its_offset(broker: Cluster, topics: Topics, centre: Broker | None) -> None:
    """A task without records commits its offset again, so that the broker never expires it."""
    pipeline = make_pipeline(broker.bootstrap, topics, centre=centre)
    partition = Partition(pipeline.source, 0)

    def work(known: int | None) -> bool:
        before = ends(pipeline.output, "__consumer_offsets")
        pipeline.run(OffsetRange(partition, known, 0, topic_id="id-1"), seconds=1)
        pipeline.committed()  # waits until a transaction has ended there, too
        return sum(before.values()) < sum(ends(pipeline.output, "__consumer_offsets").values())

    # On a busy machine a second may be over before the partition is open.
    until(lambda: work(None) and pipeline.committed(), "the first commit")
    until(lambda: work(0), "its renewal")

    placeholder = PLACEHOLDER if centre else ""
    store = KafkaGroupOffsets(
        StoreContext(pipeline.group, {"bootstrap.servers": pipeline.output}, placeholder=placeholder)
    )
    (committed,) = store.load([partition], stable=True).values()
    assert committed.offset == 0
    assert committed.metadata.startswith("winnow/2 topic=id-1 since=0 in=0 out=0 dead= ib=0 ob=0 tx=")
    store.close()
