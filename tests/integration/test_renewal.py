"""The driver renews the offsets of partitions without a task, and never sets one back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest

from app.embedded.broker import Cluster
from app.kafka.fence import KafkaFence
from app.kafka.offsets import KafkaGroupOffsets
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from tests.conftest import Topics
from tests.independent import cleansed, values
from tests.integration.tasks import Pipeline, make_pipeline

pytestmark = pytest.mark.usefixtures("patient")

RECORDS = 10


class Interleaved(KafkaGroupOffsets):
    """A store in which something happens right after a read."""

    def __init__(self, pipeline: Pipeline, then: Callable[[], object]) -> None:
        super().__init__(StoreContext(pipeline.group, {"bootstrap.servers": pipeline.bootstrap}))
        self._then = then

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        found = super().load(partitions, stable=stable)
        self._then()
        return found


def renew(pipeline: Pipeline, then: Callable[[], object] = lambda: None) -> None:
    """Renew the offset of the first partition."""
    fence, partition = (
        KafkaFence({"bootstrap.servers": pipeline.bootstrap}, pipeline.group, 60, pipeline.dead),
        Partition(pipeline.source, 0),
    )
    store = Interleaved(pipeline, then)
    assert {partition} == fence.renew([partition], store)
    store.close()


def test_a_renewal_changes_nothing(broker: Cluster, topics: Topics) -> None:
    """A renewal keeps offset and metadata, and a task continues from there."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    pipeline.fill(RECORDS)
    pipeline.run()
    store = KafkaGroupOffsets(StoreContext(pipeline.group, {"bootstrap.servers": pipeline.bootstrap}))
    partition = Partition(pipeline.source, 0)
    before = store.load([partition], stable=True)

    renew(pipeline)

    assert before == store.load([partition], stable=True)
    store.close()


def test_an_owner_that_commits_in_between_keeps_its_offset(broker: Cluster, topics: Topics) -> None:
    """An owner's commit between the driver's read and its commit stands."""
    pipeline = make_pipeline(broker.bootstrap, topics)
    pipeline.commit({(pipeline.source, 0): 0})
    pipeline.fill(RECORDS)

    renew(pipeline, then=pipeline.run)

    assert {(pipeline.source, 0): RECORDS} == pipeline.committed()
    assert [cleansed(n) for n in range(RECORDS)] == values(pipeline.cleansed())
