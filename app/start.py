"""Assembles the service and the clients of the commands: what runs, with its adapters to Kafka."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from app import __version__
from app.config import Config, Rule, Tree
from app.cures import ANY, PLACEHOLDERS, CommandLine, KafkaTools
from app.driver.clients import Clients, Rounds
from app.driver.pause import GROUP, PauseMark
from app.driver.service import Service
from app.driver.stop import Stop
from app.driver.tracker import StatusTracker
from app.kafka.admin import AdminConnection
from app.kafka.ages import KafkaAges, KafkaFirstRecords
from app.kafka.backend import expected_backend, explain_backend, librdkafka
from app.kafka.cluster import KafkaCluster, KafkaGroup
from app.kafka.companions import KafkaPlaceholders
from app.kafka.fence import KafkaFence
from app.kafka.properties import is_refused
from app.kafka.records import KafkaRecords, find_cut
from app.kafka.topics import KafkaTopics
from app.kafka.transaction_log import KafkaTransactionLog
from app.model import Assignment, Guarantee, Plugin, Receipt, TaskConfig
from app.offsets.contract import StoreContext, is_local
from app.offsets.mirrors import mirrors_in, put_right
from app.offsets.registry import open_store
from app.runtime import REAL, Runtime
from app.status import log
from app.status.server import serve
from app.status.snapshot import About, Build
from app.topics import OwnTopics

if TYPE_CHECKING:
    from app.executor.fates import Fates
    from app.kafka.dead_letter_replay import KafkaReplays

records, first_records = KafkaRecords, KafkaFirstRecords


def clients(config: Config, runtime: Runtime = REAL) -> Clients:
    """Return the driver's clients; none connects before its first call."""
    group, placeholder, here = config.group_id, config.placeholder, StoreContext(config.group_id, config.kafka)
    output = StoreContext(group, config.output_kafka, placeholder=placeholder)
    source = AdminConnection(config.kafka)
    sink = AdminConnection(config.output_kafka) if placeholder else source
    store = open_store(config.offsets.store.plugin, output)
    in_kafka_too = not is_local(store) and (bool(placeholder) or not store.transactional)
    marks = open_store(Plugin("kafka"), StoreContext(GROUP.format(group), config.output_kafka))
    others = [config.dead_letters.topic, *map(output.topic, config.source.topics)]
    topics = KafkaTopics(source, OwnTopics(config.dead_letters.topic, placeholder))
    return Clients(
        topics=topics,
        destinations=KafkaTopics(sink),
        group=KafkaGroup((source, sink) if placeholder else (source,), group),
        fence=KafkaFence(config.output_kafka, group, config.transaction_timeout, config.dead_letters.topic, runtime),
        offsets=store,
        mirrors=mirrors_in(config.mirrors, here, partial(put_right, truth=store)),
        ages=KafkaAges(config.kafka, group, topics) if config.http.enabled else None,
        find_cut=partial(find_cut, config.kafka, group),
        placeholders=KafkaPlaceholders(sink, placeholder) if placeholder else None,
        copies=open_store(Plugin("kafka"), here) if in_kafka_too else None,
        pauses=PauseMark(marks, config.sink.topic, others),
        clusters=(KafkaCluster(source), KafkaCluster(sink)),
        timings=runtime.timings,
    )


def service(
    config: Config,
    start_rounds: Callable[[], Rounds],
    stop: Stop,
    runtime: Runtime = REAL,
    options: str = PLACEHOLDERS.options,
) -> Service:
    """Return the service; commands that it suggests have the `options` that name its configuration."""
    tracker = StatusTracker(config.group_id, [log.write], runtime, config.rates, about(config, options))
    http = config.http
    page: AbstractContextManager[object] = nullcontext()
    if http.enabled:
        page = serve(http.address, http.port, lambda: tracker.snapshot, runtime, http.allowed_hosts)
    return Service(
        config, clients(config, runtime), start_rounds, stop=stop, tracker=tracker, page=page, runtime=runtime
    )


def about(config: Config, options: str = PLACEHOLDERS.options) -> About:
    engine = expected_backend(config.kafka, config.output_kafka)
    source, sink, dead_letters = config.source, config.sink.topic, config.dead_letters.topic
    return About(
        Build(__version__, platform.python_version(), version("pyspark"), librdkafka(), engine),
        config.generation,
        config.delivery_guarantee,
        source.topics if source.topics_pattern is None else (source.topics_pattern,),
        sink,
        dead_letters,
        CommandLine(options, ANY.cluster if config.placeholder else KafkaTools.of(config.kafka).cluster),
        breaker.ratio if (breaker := config.dead_letters.breaker.limit) else None,
        {each.name: each.limit for each in config.filters},
    )


def versions(config: Config) -> dict[str, str]:
    libraries = {name: version(name) for name in ("confluent-kafka", "numpy", "pyarrow")}
    return about(config).build._asdict() | libraries | {"platform": platform.platform()}


def client_rules() -> list[Rule]:
    """Return the rules for `kafka` and `sink.kafka`: librdkafka takes each property. They connect to nothing."""
    how = ("delivery.guarantee", "transaction.timeout", "sink.kafka")
    return [Rule((section, *how), partial(_is_taken, section=section)) for section in ("kafka", "sink.kafka")]


def _is_taken(
    tree: Tree,
    kafka: Mapping[str, str],
    guarantee: Guarantee,
    transaction_seconds: float,
    sink_kafka: Mapping[str, str],
    *,
    section: str,
) -> Iterator[str]:
    from app.kafka.validation import refusals

    ours = {name: value for name, value in kafka.items() if not is_refused(name, value)}  # another rule names those
    writes = None if section == "kafka" and sink_kafka else guarantee
    for name, problem in refusals(ours, writes, section, transaction_seconds):
        yield problem + (tree.at(f"{section}.{name}") if name else "")


def backend(config: Config) -> str:
    """Return which backend moves the records, and why."""
    return explain_backend(config.kafka, config.output_kafka)


@contextmanager
def fates(tasks: TaskConfig) -> Iterator[Fates]:
    """
    Yield what cleanses records as the tasks do, without writing them.

    A record that the tasks have survived must not end a command either, so the parser runs in a process of its own.
    """
    from app.executor.fates import Fates
    from app.executor.isolation import isolated

    with isolated(tasks) as parse:
        yield Fates(tasks, parse)


def work(assignment: Assignment) -> list[Receipt]:
    from app.executor import task
    from app.executor.parse import make_parser
    from app.kafka.clients import TaskClients

    with TaskClients(assignment.config, ranges=assignment.ranges) as clients:
        return task.run(assignment, clients, make_parser(assignment.config), assignment.seconds)


def ages(config: Config) -> KafkaAges:
    """Return what reads the age of waiting records again and again, a part of them at a time."""
    topics = KafkaTopics(AdminConnection(config.kafka), OwnTopics(config.dead_letters.topic, config.placeholder))
    return KafkaAges(config.kafka, config.group_id, topics)


def transaction_log(config: Config) -> KafkaTransactionLog:
    return KafkaTransactionLog(config.output_kafka, config.group_id)


def dead_letter_replays(tasks: TaskConfig) -> KafkaReplays:
    """Return what a replay of dead letters reads and writes; the group of `tasks` is the replays' own."""
    from app.kafka.dead_letter_replay import KafkaReplays

    return KafkaReplays(tasks)
