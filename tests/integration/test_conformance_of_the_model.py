"""A real broker with real clients does what the simulation's model does; see `tests/simulation/conformance.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from app.embedded.broker import Cluster
from app.kafka import settings
from tests.conftest import Topics
from tests.simulation.conformance import CASES, Kafka
from tests.support.waiting import PATIENCE, until


class Real:
    """The session's broker."""

    def __init__(self, broker: Cluster, topics: Topics) -> None:
        self._topics = topics
        self._common: dict[str, Any] = {"bootstrap.servers": broker.bootstrap}
        self._admin = AdminClient(self._common, logger=settings.SILENT)
        self.name = topics("name")

    def topic(self, partitions: int = 1, *, append_time: bool = False) -> str:
        kind = "LogAppendTime" if append_time else "CreateTime"
        return self._topics("records", partitions, {"message.timestamp.type": kind})

    def producer(self, transactional_id: str | None = None, **more: Any) -> Any:
        own = {} if transactional_id is None else {"transactional.id": transactional_id}
        return Producer({**self._common, **own, "linger.ms": 0, **more}, logger=settings.SILENT)

    def consumer(self, isolation: str = "read_committed", **own: Any) -> Any:
        usual = {"group.id": self.name, "enable.partition.eof": True, "enable.auto.commit": False}
        return Consumer({**self._common, **usual, "isolation.level": isolation, **own}, logger=settings.SILENT)

    def admin(self) -> Any:
        self._admin.list_topics(timeout=PATIENCE)  # a client whose first requests are concurrent may lose an answer
        return self._admin

    def until(self, check: Callable[[], object], what: str) -> None:
        until(check, what)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_real_broker_conforms(case: Callable[[Kafka], None], broker: Cluster, topics: Topics) -> None:
    """What the model must do, too."""
    case(Real(broker, topics))
