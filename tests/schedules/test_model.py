"""The model of Kafka does what a real one does; `tests/integration/test_conformance_of_the_model.py` asks that one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.simulation import librdkafka, scheduler
from tests.simulation.conformance import CASES, Kafka
from tests.simulation.history import History
from tests.simulation.kafka import Cluster
from tests.simulation.librdkafka import FakeAdmin, FakeConsumer, FakeProducer, World
from tests.simulation.network import Network
from tests.simulation.scheduler import Scheduler

BOOTSTRAP = "here:9092"


class Model:
    """The model, with simulated time."""

    name = "test"

    def __init__(self, of: Scheduler) -> None:
        self.scheduler = of
        self.cluster = Cluster(of, lambda: of.rng.expovariate(1 / 0.01))

    def topic(self, partitions: int = 1, *, append_time: bool = False) -> str:
        return self.cluster.create("topic", partitions, append_time=append_time).name

    def producer(self, transactional_id: str | None = None, **settings: Any) -> Any:
        own = {} if transactional_id is None else {"transactional.id": transactional_id}
        return FakeProducer({"bootstrap.servers": BOOTSTRAP, **own, **settings})

    def consumer(self, isolation: str = "read_committed", **settings: Any) -> Any:
        usual = {"bootstrap.servers": BOOTSTRAP, "group.id": self.name, "enable.partition.eof": True}
        return FakeConsumer({**usual, "isolation.level": isolation, **settings})

    def admin(self) -> Any:
        return FakeAdmin({"bootstrap.servers": BOOTSTRAP})

    def until(self, check: Callable[[], object], what: str) -> None:
        deadline = self.scheduler.now + 60.0
        while not check():
            assert self.scheduler.now < deadline, f"{what} did not come"
            self.scheduler.sleep(0.05)


@pytest.fixture(params=range(5))
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Return a model whose latencies follow a seed."""
    of = Scheduler(request.param)
    history, model = History(of.clock, kept=False), Model(of)
    scheduler.use(of)
    librdkafka.use(World(of, Network(of, history), history, {BOOTSTRAP: model.cluster}))
    yield model
    scheduler.use(None)
    librdkafka.use(None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_model_conforms(case: Callable[[Kafka], None], kafka: Kafka) -> None:
    """With every latency that a seed gives."""
    case(kafka)
