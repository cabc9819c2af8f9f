"""Behaviour of librdkafka that the product avoids. A test fails once a release fixes it (see docs/librdkafka.md)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.support.waiting import PATIENCE, until

PARTITIONS = 20


@pytest.mark.parametrize(
    ("offset", "state"), [(OFFSET_BEGINNING, "active"), (0, "stopped")], ids=["a logical offset", "a number"]
)
def test_partitions_that_are_unassigned_at_once(broker: Cluster, topics: Topics, offset: int, state: str) -> None:
    """
    A partition unassigned while its logical offset is resolved is fetched forever, so tasks assign numbers.

    If the offset is resolved sooner, it is not: one of many partitions shows it.
    """
    seen: list[dict[str, Any]] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "never-joined",
            "statistics.interval.ms": 50,
            "stats_cb": lambda text: seen.append(json.loads(text)["topics"]),
        }
    )
    topic = topics("raw", PARTITIONS)
    consumer.list_topics(topic, PATIENCE)

    def assign_and_unassign() -> None:
        for number in range(PARTITIONS):
            consumer.incremental_assign([TopicPartition(topic, number, offset)])
            consumer.incremental_unassign([TopicPartition(topic, number)])
        seen.clear()

    def is_seen() -> bool:
        consumer.poll(0.05)
        partitions = seen[-1].get(topic, {}).get("partitions", {}) if seen else {}
        states = {partitions[each]["fetch_state"] for each in partitions.keys() - {"-1"}}
        if states == {"stopped"} != {state}:
            assign_and_unassign()  # again: a busy machine may resolve all of them sooner
        return state in states and states <= {"stopped", state}

    assign_and_unassign()
    until(is_seen, state)
    consumer.close()
