"""The driver renews the offsets of partitions without a task, and never sets one back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from app.embedded.broker import Cluster
from app.kafka.fence import KafkaFence
from app.kafka.offsets import KafkaGroupOffsets
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from tests.conftest import Topics
from tests.independent import cleansed, values
from tests.integration.tasks import Stage, make_stage

RECORDS = 10


class Interleaved(KafkaGroupOffsets):
    """A store in which something happens right after a read."""

    def __init__(self, stage: Stage, then: Callable[[], object]) -> None:
        super().__init__(StoreContext(stage.group, {"bootstrap.servers": stage.bootstrap}))
        self._then = then

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        found = super().load(partitions, stable=stable)
        self._then()
        return found


def renew(stage: Stage, then: Callable[[], object] = lambda: None) -> None:
    """Renew the offset of the first partition."""
    fence, partition = (
        KafkaFence({"bootstrap.servers": stage.bootstrap}, stage.group, 60, stage.dead),
        Partition(stage.source, 0),
    )
    store = Interleaved(stage, then)
    assert {partition} == fence.renew([partition], store)
    store.close()


def test_a_renewal_changes_nothing(broker: Cluster, topics: Topics) -> None:
    """A renewal keeps offset and metadata, and a task continues from there."""
    stage = make_stage(broker.bootstrap, topics)
    stage.fill(RECORDS)
    stage.run()
    store = KafkaGroupOffsets(StoreContext(stage.group, {"bootstrap.servers": stage.bootstrap}))
    partition = Partition(stage.source, 0)
    before = store.load([partition], stable=True)

    renew(stage)

    assert before == store.load([partition], stable=True)
    store.close()


def test_an_owner_that_commits_in_between_keeps_its_offset(broker: Cluster, topics: Topics) -> None:
    """An owner's commit between the driver's read and its commit stands."""
    stage = make_stage(broker.bootstrap, topics)
    stage.commit({(stage.source, 0): 0})
    stage.fill(RECORDS)

    renew(stage, then=stage.run)

    assert {(stage.source, 0): RECORDS} == stage.committed()
    assert [cleansed(n) for n in range(RECORDS)] == values(stage.cleansed())
