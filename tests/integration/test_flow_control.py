"""How fast a task reads from a real Kafka: with configured limits, and with a slow sink."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import psutil

from app.embedded.broker import Cluster
from app.executor.pacing import BURST_SECONDS, POLL_SECONDS
from app.kafka.backend import Backend
from app.model import Outcome, Partition, Receipt
from app.offsets.metadata import OffsetMetadata
from app.rates import BreakerLimit, Rates
from tests.conftest import Topics
from tests.independent import Written, by_partition, cleansed, produce, values
from tests.integration.tasks import BOTH_BACKENDS, Pipeline, make_pipeline, slow_down
from tests.support.waiting import until

RATE, PARTITIONS = 700, 4
RECORDS = 5 * RATE
"""Those of five seconds."""


def check_prefix(pipeline: Pipeline, receipts: Mapping[Partition, Receipt]) -> None:
    """Require that the sink contains exactly the records counted by the receipts, in order."""
    found = by_partition(pipeline.cleansed())
    for partition, receipt in receipts.items():
        assert receipt.balances
        assert [cleansed(n, partition.number) for n in range(receipt.records)] == found[partition.number]


def most_since(began: float) -> float:
    """Return the most records that a partition's rate allows: those due, a first burst, and the last poll."""
    return RATE * (time.monotonic() - began + BURST_SECONDS + POLL_SECONDS)


def run_one_record(broker: Cluster, topics: Topics, backend: Backend | None = None) -> None:
    """Run a record through topics of its own: the first task of a process takes longer to begin."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    pipeline.backend = backend
    pipeline.fill(1)
    pipeline.run()


def test_a_rate_is_a_limit(broker: Cluster, topics: Topics) -> None:
    """Each partition is read at no more than its rate, and nothing is lost or duplicated."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=PARTITIONS, sink=PARTITIONS, rates=Rates(RATE))
    pipeline.fill(RECORDS)
    run_one_record(broker, topics)

    began = time.monotonic()
    receipts = pipeline.run()

    assert most_since(began) >= RECORDS
    assert {(Outcome.DONE, RECORDS)} == {(each.outcome, each.records) for each in receipts.values()}
    check_prefix(pipeline, receipts)


@BOTH_BACKENDS
def test_the_first_backlog_is_read_slowly(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """The group's initial backlog is read at `initial.rate`, and the offset's metadata records where it ends."""
    pipeline = make_pipeline(broker.bootstrap, topics, rates=Rates(initial=RATE))
    pipeline.backend = backend
    pipeline.fill(2 * RECORDS)
    (planned,) = pipeline.ranges(RECORDS)
    run_one_record(broker, topics, backend)

    began = time.monotonic()
    (receipt,) = pipeline.run(replace(planned, backlog=2 * RECORDS)).values()

    assert most_since(began) >= RECORDS == receipt.records
    assert 2 * RECORDS == OffsetMetadata.parse(receipt.metadata).backlog
    pipeline.fill(4 * RECORDS)  # these arrived later

    (receipt,) = pipeline.run().values()

    assert Outcome.DONE is receipt.outcome
    assert pipeline.lag() == {(pipeline.source, 0): 0}


@BOTH_BACKENDS
def test_too_many_dead_letters(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """Too many dead letters block their partition only. Sink, dead letters and offset stop at the same record."""
    limit = BreakerLimit(0.5, minimum=100, seconds=60)
    pipeline = make_pipeline(broker.bootstrap, topics, source=2, sink=2, breaker=limit)
    pipeline.backend = backend
    pipeline.fill(1_000)
    produce(broker.bootstrap, pipeline.source, [Written(b"rubbish")] * 9_000)

    receipts = pipeline.run()

    blocked, other = (receipts[Partition(pipeline.source, number)] for number in (0, 1))
    assert (Outcome.BLOCKED, True) == (blocked.outcome, blocked.tripped)
    assert (Outcome.DONE, 1_000) == (other.outcome, other.out)
    assert pipeline.committed()[pipeline.source, 0] == blocked.end < 10_000
    assert (blocked.out, blocked.dead.get("no_marker", 0)) == (
        len(values(pipeline.cleansed(), 0)),
        len(pipeline.dead_letters()),
    )
    pipeline.changes["breaker"] = None  # the operator accepts the dead letters

    (receipt,) = pipeline.run(*(each for each in pipeline.ranges() if each.partition.number == 0)).values()

    assert (Outcome.DONE, 10_000) == (receipt.outcome, receipt.end)
    assert (1_000, 9_000) == (len(values(pipeline.cleansed(), 0)), len(pipeline.dead_letters()))


def test_a_slow_sink(broker: Cluster, topics: Topics) -> None:
    """With a slow sink memory does not grow, no transaction times out, and everything arrives once."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=2, sink=2)
    pipeline.changes["kafka"] = {"bootstrap.servers": broker.bootstrap, "client.id": pipeline.group}
    pipeline.fill(100)
    pipeline.run()  # memory for one-time loading does not count below
    pipeline.fill(60_000)
    slow_down(broker.bootstrap, pipeline.group, 60_000)
    process = psutil.Process()
    before, most = process.memory_info().rss, 0

    with pipeline.running(*pipeline.ranges(1 << 40)):

        def is_done() -> bool:
            nonlocal most
            most = max(most, process.memory_info().rss)
            return not any(pipeline.lag().values())

        until(is_done, "the end")

    found = by_partition(pipeline.cleansed())
    written = [*range(100), *range(60_000)]
    assert [[cleansed(n, each) for n in written] for each in (0, 1)] == [found[0], found[1]]
    assert most - before < 200 << 20
