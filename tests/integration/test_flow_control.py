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
from tests.integration.tasks import BOTH_BACKENDS, Stage, make_stage, slow_down
from tests.support.waiting import until

RATE, SECONDS, PARTITIONS = 700, 5, 4


def check_prefix(stage: Stage, receipts: Mapping[Partition, Receipt]) -> None:
    """Require that the sink contains exactly the records counted by the receipts, in order."""
    found = by_partition(stage.cleansed())
    for partition, receipt in receipts.items():
        assert receipt.balances
        assert [cleansed(n, partition.number) for n in range(receipt.records)] == found[partition.number]


def most_since(began: float) -> float:
    """Return the most records that a partition's rate allows: those due, a first burst, and the last poll."""
    return RATE * (time.monotonic() - began + BURST_SECONDS + POLL_SECONDS)


def test_a_rate_is_a_limit(broker: Cluster, topics: Topics) -> None:
    """Each partition is read at no more than its rate, and nothing is lost or duplicated."""
    stage = make_stage(broker.bootstrap, topics, source=PARTITIONS, sink=PARTITIONS, rates=Rates(RATE))
    stage.fill(3 * RATE * SECONDS)

    began = time.monotonic()
    receipts = stage.run(seconds=SECONDS)
    taken = [each.records for each in receipts.values()]

    assert min(taken) > 0
    assert max(taken) <= most_since(began)
    assert {Outcome.DONE} == {each.outcome for each in receipts.values()}
    check_prefix(stage, receipts)


@BOTH_BACKENDS
def test_the_first_backlog_is_read_slowly(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """The group's initial backlog is read at `initial.rate`, and the offset's metadata records where it ends."""
    stage = make_stage(broker.bootstrap, topics, rates=Rates(initial=RATE))
    stage.backend = backend
    stage.fill(10 * RATE)
    (planned,) = stage.ranges(1 << 40)

    began = time.monotonic()
    (receipt,) = stage.run(replace(planned, backlog=10 * RATE), seconds=SECONDS).values()

    assert 0 < receipt.records <= most_since(began)
    assert 10 * RATE == OffsetMetadata.parse(receipt.metadata).backlog
    stage.fill(20 * RATE)  # these arrived later

    (receipt,) = stage.run().values()

    assert Outcome.DONE is receipt.outcome
    assert stage.lag() == {(stage.source, 0): 0}


@BOTH_BACKENDS
def test_too_many_dead_letters(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """Too many dead letters block their partition only. Sink, dead letters and offset stop at the same record."""
    limit = BreakerLimit(0.5, minimum=100, seconds=60)
    stage = make_stage(broker.bootstrap, topics, source=2, sink=2, breaker=limit)
    stage.backend = backend
    stage.fill(1_000)
    produce(broker.bootstrap, stage.source, [Written(b"rubbish")] * 9_000)

    receipts = stage.run()

    blocked, other = (receipts[Partition(stage.source, number)] for number in (0, 1))
    assert (Outcome.BLOCKED, True) == (blocked.outcome, blocked.tripped)
    assert (Outcome.DONE, 1_000) == (other.outcome, other.out)
    assert stage.committed()[stage.source, 0] == blocked.end < 10_000
    assert (blocked.out, blocked.dead.get("no_marker", 0)) == (
        len(values(stage.cleansed(), 0)),
        len(stage.dead_letters()),
    )
    stage.changes["breaker"] = None  # the operator accepts the dead letters

    (receipt,) = stage.run(*(each for each in stage.ranges() if each.partition.number == 0)).values()

    assert (Outcome.DONE, 10_000) == (receipt.outcome, receipt.end)
    assert (1_000, 9_000) == (len(values(stage.cleansed(), 0)), len(stage.dead_letters()))


def test_a_slow_sink(broker: Cluster, topics: Topics) -> None:
    """With a slow sink memory does not grow, no transaction times out, and everything arrives once."""
    stage = make_stage(broker.bootstrap, topics, source=2, sink=2, transaction_seconds=20.0)
    stage.changes["kafka"] = {"bootstrap.servers": broker.bootstrap, "client.id": stage.group}
    stage.fill(100)
    stage.run()  # memory for one-time loading does not count below
    stage.fill(60_000)
    slow_down(broker.bootstrap, stage.group, 60_000)
    process = psutil.Process()
    before, most = process.memory_info().rss, 0

    with stage.running(*stage.ranges(1 << 40)):

        def is_done() -> bool:
            nonlocal most
            most = max(most, process.memory_info().rss)
            return not any(stage.lag().values())

        until(is_done, "the end")

    found = by_partition(stage.cleansed())
    written = [*range(100), *range(60_000)]
    assert [[cleansed(n, each) for n in written] for each in (0, 1)] == [found[0], found[1]]
    assert most - before < 200 << 20
