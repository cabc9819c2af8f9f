"""Behaviour of librdkafka that the product avoids. A test fails once a release fixes it (see docs/librdkafka.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("offset", "state"), [(OFFSET_BEGINNING, "active"), (0, "stopped")], ids=["a logical offset", "a number"]
)
def test_a_partition_that_is_unassigned_at_once(broker: Cluster, topics: Topics, offset: int, state: str) -> None:
    """A partition unassigned while its logical offset is resolved is fetched forever, so tasks assign numbers."""
    seen: list[dict[str, Any]] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "never-joined",
            "statistics.interval.ms": 50,
            "stats_cb": lambda text: seen.append(json.loads(text)["topics"]),
        }
    )
    place = TopicPartition(topics("raw"), 0, offset)
    consumer.list_topics(place.topic, 30)
    consumer.incremental_assign([place])
    consumer.incremental_unassign([place])
    seen.clear()

    def state_now() -> str:
        consumer.poll(0.05)
        partitions = seen[-1].get(place.topic, {}).get("partitions", {}) if seen else {}
        return str(partitions.get("0", {}).get("fetch_state", ""))

    until(lambda: state == state_now(), state)
    consumer.close()
