"""Puts the service together: the driver with its Kafka clients, its status and its log."""

from __future__ import annotations

from collections.abc import Callable

from app.config import Config
from app.driver.clients import Clients, Rounds
from app.driver.service import Service
from app.driver.stop import Stop
from app.driver.tracker import StatusTracker
from app.kafka.admin import AdminConnection
from app.kafka.fence import KafkaFence
from app.kafka.group import KafkaGroup
from app.kafka.topics import KafkaTopics
from app.offsets.contract import StoreContext
from app.offsets.mirrors import mirrors_of_the_driver
from app.offsets.registry import open_store
from app.runtime import REAL, Runtime
from app.status import log


def clients(config: Config, runtime: Runtime = REAL) -> Clients:
    """Return what the driver talks to; nothing connects before the first question."""
    kafka, group, offsets = config.kafka, config.group_id, config.offsets
    connection, context = AdminConnection(kafka), StoreContext(group, kafka)
    store = open_store(offsets.store.plugin, context)
    return Clients(
        topics=KafkaTopics(connection),
        group=KafkaGroup(connection, group),
        fence=KafkaFence(kafka, group, config.transaction_timeout, runtime),
        offsets=store,
        mirrors=mirrors_of_the_driver([each.plugin for each in offsets.mirrors], context, store),
    )


def service(config: Config, start_rounds: Callable[[], Rounds], stop: Stop, runtime: Runtime = REAL) -> Service:
    """Return a service that logs what happens."""
    tracker = StatusTracker(config.group_id, [log.write], runtime)
    return Service(config, clients(config, runtime), start_rounds, stop=stop, tracker=tracker, runtime=runtime)
