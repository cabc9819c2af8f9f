"""Puts the service together: the driver with its Kafka clients, its status and its log."""

from __future__ import annotations

from collections.abc import Callable

from app.config import Config
from app.driver.clients import Clients, Rounds
from app.driver.service import Service
from app.driver.stop import Stop
from app.driver.tracker import StatusTracker
from app.kafka.admin import AdminConnection
from app.kafka.failures import SINK
from app.kafka.fence import KafkaFence
from app.kafka.group import KafkaGroup
from app.kafka.placeholders import KafkaPlaceholders
from app.kafka.topics import KafkaTopics
from app.model import Plugin
from app.offsets.contract import StoreContext, is_local
from app.offsets.mirrors import mirrors_of_the_driver
from app.offsets.registry import open_store
from app.runtime import REAL, Runtime
from app.status import log


def clients(config: Config, runtime: Runtime = REAL) -> Clients:
    """Return what the driver talks to; nothing connects before the first question."""
    group, placeholder, here = config.group_id, config.placeholder, StoreContext(config.group_id, config.kafka)
    source = sink = AdminConnection(config.kafka)
    if placeholder:
        sink = AdminConnection(config.output_kafka, SINK)
    store = open_store(config.offsets.store.plugin, StoreContext(group, config.output_kafka, placeholder=placeholder))
    return Clients(
        topics=KafkaTopics(source),
        destinations=KafkaTopics(sink),
        group=KafkaGroup((source, sink) if placeholder else (source,), group),
        fence=KafkaFence(config.output_kafka, group, config.transaction_timeout, config.dead_letters.topic, runtime),
        offsets=store,
        mirrors=mirrors_of_the_driver(config.mirrors, here, store),
        placeholders=KafkaPlaceholders(sink, placeholder) if placeholder else None,
        copies=open_store(Plugin("kafka"), here) if placeholder and not is_local(store) else None,
    )


def service(config: Config, start_rounds: Callable[[], Rounds], stop: Stop, runtime: Runtime = REAL) -> Service:
    """Return a service that logs what happens."""
    tracker = StatusTracker(config.group_id, [log.write], runtime)
    return Service(config, clients(config, runtime), start_rounds, stop=stop, tracker=tracker, runtime=runtime)
