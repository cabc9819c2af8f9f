"""The rate of a task over a minute, and its memory with a backlog larger than a worker."""

from __future__ import annotations

import time

import psutil
import pytest

from app.embedded.broker import Cluster
from app.model import Outcome
from app.rates import Rates
from tests.conftest import Topics
from tests.independent import Written, line, produce
from tests.integration.tasks import make_pipeline, noise, slow_down

RATE, SECONDS, PARTITIONS = 700, 60, 4


def test_a_rate_holds_for_a_minute(broker: Cluster, topics: Topics) -> None:
    """Each partition is read at its rate, within 5 % over 60 s."""
    pipeline = make_pipeline(broker.bootstrap, topics, source=PARTITIONS, sink=PARTITIONS, rates=Rates(RATE))
    pipeline.fill(2 * RATE * SECONDS)

    receipts = pipeline.run(seconds=SECONDS)

    assert [pytest.approx(RATE, rel=0.05)] * PARTITIONS == [each.records / SECONDS for each in receipts.values()]
    assert {Outcome.DONE} == {each.outcome for each in receipts.values()}


def test_a_worker_keeps_its_memory(broker: Cluster, topics: Topics) -> None:
    """With a slow sink the backlog stays in Kafka, so memory does not grow with partitions or lag."""
    partitions, records, size = 48, 300, 50_000
    pipeline = make_pipeline(broker.bootstrap, topics, source=partitions, sink=partitions)
    pipeline.changes["kafka"] = {"bootstrap.servers": broker.bootstrap, "client.id": pipeline.group}
    slow_down(broker.bootstrap, pipeline.group, 30_000_000)
    raw = [line(1).replace(b"http://", b"http://" + noise(size, seed)) for seed in range(20)]
    written = (Written(raw[n % 20], partition=each) for n in range(records) for each in range(partitions))
    produce(broker.bootstrap, pipeline.source, written, **{"client.id": "feed"})
    process = psutil.Process()
    before, most = process.memory_info().rss, 0

    with pipeline.running(*pipeline.ranges(1 << 40)):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            most = max(most, process.memory_info().rss)
            time.sleep(0.1)

    print(f"{(most - before) >> 20} MiB more at most, of a backlog of {partitions * records * size >> 20} MiB")
    assert most - before < 600 << 20
