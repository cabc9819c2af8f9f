"""One task between two Kafka clusters behaves as on one, with both backends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.embedded.broker import Broker, Cluster
from app.kafka.backend import Backend
from app.kafka.fence import KafkaFence
from app.model import Guarantee, OffsetRange, Outcome, Partition
from tests import independent
from tests.conftest import Topics
from tests.independent import Written, amiss, line, produce, values
from tests.integration.tasks import BOTH_BACKENDS, BOTH_GUARANTEES, PLACEHOLDER, Pipeline, make_pipeline
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("patient")


def apart(broker: Cluster, centre: Broker, topics: Topics, guarantee: Guarantee, backend: Backend) -> Pipeline:
    """Make a pipeline whose source has two partitions on one cluster; sink, dead letters and offsets are on the other."""
    pipeline = make_pipeline(broker.bootstrap, topics, guarantee, source=2)
    for topic in (pipeline.sink, pipeline.dead, PLACEHOLDER.format(topic=pipeline.source)):
        centre.create_topic(topic, 2)
    return replace(pipeline, centre=centre.bootstrap, backend=backend)


@BOTH_GUARANTEES
@BOTH_BACKENDS
def test_a_task_goes_on_where_another_ended(
    broker: Cluster, second: Broker, topics: Topics, guarantee: Guarantee, backend: Backend
) -> None:
    """Output, dead letters and offsets are on the sink's cluster, each record once; the source's is unchanged."""
    pipeline = apart(broker, second, topics, guarantee, backend)
    for begin in (0, 50):
        lines = [Written(line(n, p), None, p) for n in range(begin, begin + 50) for p in range(2)]
        produce(broker.bootstrap, pipeline.source, [*lines, Written(b"rubbish %d" % begin)])
        pipeline.run()

    assert {} == amiss({0: 100, 1: 100}, pipeline.cleansed())
    assert [b"rubbish 0", b"rubbish 50"] == values(pipeline.dead_letters())
    assert {(pipeline.source, 0): 102, (pipeline.source, 1): 100} == pipeline.committed()
    assert {} == independent.committed(broker.bootstrap, pipeline.group, pipeline.source)
    assert [] == independent.read(broker.bootstrap, pipeline.sink)


@BOTH_BACKENDS
def test_the_fence_is_on_the_sinks_cluster(broker: Cluster, second: Broker, topics: Topics, backend: Backend) -> None:
    """A fence on the sink's cluster ends a task and its transaction. On the source's cluster it has no effect."""
    pipeline = apart(broker, second, topics, Guarantee.EXACTLY_ONCE, backend)
    produce(broker.bootstrap, pipeline.source, [Written(line(n)) for n in range(50)])
    here, there = (
        KafkaFence({"bootstrap.servers": at}, pipeline.group, 60, pipeline.dead)
        for at in (broker.bootstrap, second.bootstrap)
    )

    with pipeline.running(*(OffsetRange(Partition(pipeline.source, number), None, 0) for number in range(2))) as task:
        until(lambda: pipeline.lag()[pipeline.source, 0] == 0, "the first lines")
        here.fence([Partition(pipeline.source, number) for number in range(2)])
        produce(broker.bootstrap, pipeline.source, [Written(line(50))])
        until(lambda: pipeline.committed()[pipeline.source, 0] == 51, "a line after a fence that reaches nobody")
        there.fence([Partition(pipeline.source, 0)])
        assert task.ended()

    assert Outcome.FENCED is task.receipts[Partition(pipeline.source, 0)].outcome
    produce(broker.bootstrap, pipeline.source, [Written(line(51))])
    pipeline.run()
    assert {} == amiss({0: 52}, pipeline.cleansed())
