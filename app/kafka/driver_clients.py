"""Makes the Kafka clients of the driver."""

from __future__ import annotations

from collections.abc import Mapping

from app.driver.clients import Clients
from app.kafka.admin import AdminConnection
from app.kafka.fence import KafkaFence
from app.kafka.group import KafkaGroup
from app.kafka.topics import KafkaTopics
from app.model import Plugin
from app.offsets import registry
from app.offsets.contract import StoreContext
from app.runtime import REAL, Runtime


def driver_clients(
    kafka: Mapping[str, str], group: str, store: Plugin, transaction_seconds: float, runtime: Runtime = REAL
) -> Clients:
    """Return what the driver talks to; nothing connects before the first question."""
    connection = AdminConnection(kafka)
    return Clients(
        topics=KafkaTopics(connection),
        group=KafkaGroup(connection, group),
        fence=KafkaFence(kafka, group, transaction_seconds, runtime),
        offsets=registry.open_store(store, StoreContext(group, kafka)),
    )
