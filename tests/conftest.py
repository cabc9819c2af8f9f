"""What all tests share: one real Kafka for the whole session, started by the first test that asks for it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Protocol

import hypothesis
import pytest

from app.embedded.broker import Broker, Cluster

# How long an example takes is for the benchmarks: on a busy machine it says nothing.
hypothesis.settings.register_profile("winnow", deadline=None)
hypothesis.settings.load_profile("winnow")


class Topics(Protocol):
    """Creates a topic that no other test knows, and returns its name."""

    def __call__(self, role: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create it; its name tells the test and the role."""
        ...


@pytest.fixture(scope="session")
def broker() -> Iterator[Cluster]:
    """Return the Kafka of the session: the one TEST_KAFKA_BROKER names, or an embedded one."""
    if bootstrap := os.environ.get("TEST_KAFKA_BROKER"):
        yield Cluster(bootstrap)
        return
    with Broker() as embedded:
        yield embedded


@pytest.fixture
def topics(broker: Cluster, request: pytest.FixtureRequest) -> Topics:
    """Return a maker of topics that belong to this test alone."""
    test = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:60]

    def create(role: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        return broker.create_topic(f"{test}.{role}.{uuid.uuid4().hex[:8]}", partitions, config)

    return create
