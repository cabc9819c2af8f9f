"""Three nodes shared by all of these tests, which take the last one down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import Broker
from tests.conftest import QUICK_JAVA
from tests.integration.three_nodes.placed import COMPACTED, FRAGILE_NODE

NODES = 3
HEARTBEATS = {"broker.session.timeout.ms": "10000"}
"""A node that is killed is missed soon, but not one that is only busy."""


@pytest.fixture(scope="package")
def three() -> Iterator[Broker]:
    """Return the nodes. Kafka's own topics are on the two that stay up."""
    with Broker(nodes=NODES, java=QUICK_JAVA, properties=HEARTBEATS) as broker:
        own = ("__consumer_offsets", "__transaction_state")
        broker.create_topics(*(NewTopic(name, 5, replica_assignment=[[1, 2]] * 5, config=COMPACTED) for name in own))
        yield broker


@pytest.fixture(autouse=True)
def whole(three: Broker) -> None:
    """Restart the last node if a test before this one failed while it was down."""
    if len(three.pids) < NODES:
        three.start(FRAGILE_NODE)
