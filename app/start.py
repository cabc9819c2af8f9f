"""Puts the service together: the driver with its Kafka clients and its log."""

from __future__ import annotations

from collections.abc import Callable

from app.config import Config
from app.driver.clients import Clients, Rounds
from app.driver.service import Service
from app.driver.stop import Stop
from app.driver.tracker import StatusTracker
from app.kafka.driver_clients import driver_clients
from app.model import Plugin
from app.runtime import REAL, Runtime
from app.status import log


def clients(config: Config, runtime: Runtime = REAL) -> Clients:
    """Return the driver's clients for a configuration; nothing connects before the first question."""
    store = Plugin(config.offsets.store.name, config.offsets.store.options)
    return driver_clients(config.kafka, config.group_id, store, config.transaction_timeout, runtime)


def service(config: Config, start_rounds: Callable[[], Rounds], stop: Stop, runtime: Runtime = REAL) -> Service:
    """Return a service that logs what happens."""
    tracker = StatusTracker(config.group_id, [log.write], runtime)
    return Service(config, clients(config, runtime), start_rounds, stop=stop, tracker=tracker, runtime=runtime)
