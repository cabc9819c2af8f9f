"""Topics whose partitions are on chosen nodes."""

from __future__ import annotations

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import Broker

FRAGILE_NODE = 3
"""The node that goes down."""
COMPACTED = {"cleanup.policy": "compact"}


def create(broker: Broker, *topics: NewTopic) -> None:
    """Create topics with each partition on its nodes."""
    admin = broker.admin()  # must live until the response
    for created in admin.create_topics(list(topics)).values():
        created.result(60)
