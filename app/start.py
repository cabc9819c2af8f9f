"""Assembles the service: the driver with its Kafka clients, status tracker, log and status page."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from typing import TYPE_CHECKING

from app import __version__
from app.config import Config
from app.driver.clients import AgesUnknown, Clients, Rounds
from app.driver.pause import GROUP, PauseMark
from app.driver.service import Service
from app.driver.stop import Stop
from app.driver.tracker import StatusTracker
from app.kafka.admin import AdminConnection
from app.kafka.ages import KafkaAges
from app.kafka.backend import expected_backend, librdkafka
from app.kafka.cluster import KafkaCluster, KafkaGroup
from app.kafka.companions import KafkaPlaceholders
from app.kafka.failures import KAFKA, SINK
from app.kafka.fence import KafkaFence
from app.kafka.topics import KafkaTopics
from app.model import Plugin, TaskConfig
from app.offsets.contract import StoreContext, is_local
from app.offsets.mirrors import mirrors_of_the_driver
from app.offsets.registry import open_store
from app.runtime import REAL, Runtime
from app.status import log
from app.status.server import StatusServer
from app.status.snapshot import About, Build
from app.topics import OwnTopics

if TYPE_CHECKING:
    from app.executor.fates import Fates
    from app.kafka.records import KafkaRecords


def clients(config: Config, runtime: Runtime = REAL) -> Clients:
    """Return the driver's clients; none connects before its first call."""
    group, placeholder, here = config.group_id, config.placeholder, StoreContext(config.group_id, config.kafka)
    output = StoreContext(group, config.output_kafka, placeholder=placeholder)
    source = sink = AdminConnection(config.kafka)
    cluster = SINK if placeholder else KAFKA
    if placeholder:
        sink = AdminConnection(config.output_kafka, cluster)
    store = open_store(config.offsets.store.plugin, output)
    marks = open_store(Plugin("kafka"), StoreContext(GROUP.format(group), config.output_kafka))
    marked = [config.dead_letters.topic, config.sink.topic, *map(output.topic, config.source.topics)]
    topics = KafkaTopics(source, OwnTopics(config.dead_letters.topic, placeholder))
    return Clients(
        topics=topics,
        destinations=KafkaTopics(sink),
        group=KafkaGroup((source, sink) if placeholder else (source,), group),
        fence=KafkaFence(
            config.output_kafka,
            group,
            config.transaction_timeout,
            config.dead_letters.topic,
            runtime,
            cluster=cluster,
        ),
        offsets=store,
        mirrors=mirrors_of_the_driver(config.mirrors, here, store),
        ages=KafkaAges(config.kafka, group, topics) if config.http.enabled else AgesUnknown(),
        placeholders=KafkaPlaceholders(sink, placeholder) if placeholder else None,
        copies=open_store(Plugin("kafka"), here) if placeholder and not is_local(store) else None,
        pauses=PauseMark(marks, marked),
        clusters=(KafkaCluster(source, config.kafka), KafkaCluster(sink, config.output_kafka)),
        timings=runtime.timings,
    )


def service(config: Config, start_rounds: Callable[[], Rounds], stop: Stop, runtime: Runtime = REAL) -> Service:
    """Return a service that logs its status and, if enabled, serves it over HTTP."""
    tracker = StatusTracker(config.group_id, [log.write], runtime, config.rates, about(config))
    http = config.http
    page: AbstractContextManager[object] = nullcontext()
    if http.enabled:
        page = StatusServer(http.address, http.port, lambda: tracker.snapshot, runtime, http.allowed_hosts)
    return Service(
        config, clients(config, runtime), start_rounds, stop=stop, tracker=tracker, page=page, runtime=runtime
    )


def about(config: Config) -> About:
    """Describe this build and its configuration for the status page."""
    engine = expected_backend(config.kafka, config.output_kafka)
    source, sink, dead_letters = config.source, config.sink.topic, config.dead_letters.topic
    return About(
        Build(__version__, platform.python_version(), version("pyspark"), librdkafka(), engine),
        config.generation,
        config.delivery_guarantee,
        source.topics if source.topics_pattern is None else (source.topics_pattern,),
        sink,
        dead_letters,
    )


def fates(tasks: TaskConfig) -> Fates:
    """Return what cleanses records as the tasks do, without writing them."""
    from app.executor.fates import Fates

    return Fates(tasks)


def records(tasks: TaskConfig) -> tuple[KafkaRecords, KafkaRecords]:
    """Return readers of the source's cluster and of the sink's."""
    from app.kafka.records import KafkaRecords

    return KafkaRecords(tasks.kafka, tasks.group), KafkaRecords(tasks.output_kafka, tasks.group)
