"""The real clients of a task, made inside it: never before a fork, never shipped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from confluent_kafka import Producer, libversion

from app.kafka import settings
from app.kafka.plain.consumer import PlainConsumer, Reader
from app.kafka.plain.sender import MakeProducer, PlainSender, ReportingPlainSender
from app.kafka.writers import AcknowledgedWriter, TransactionalWriter
from app.model import Guarantee, Partition, TaskConfig


@dataclass(frozen=True, slots=True)
class Backend:
    """One way for records to go between librdkafka and us."""

    name: str
    consumer: Callable[[TaskConfig], Reader]
    sender: type[PlainSender]
    reporting_sender: type[PlainSender]


log = logging.getLogger("winnow.kafka")
PLAIN = Backend("plain", PlainConsumer, PlainSender, ReportingPlainSender)


class KafkaClients:
    """
    Makes consumer and writers as the task_config's guarantee asks for them.

    Args:
        job: what they are for.
        path: how records go; by default the best way that works here.
        producer: what makes librdkafka's producer from its settings.
    """

    def __init__(
        self, task_config: TaskConfig, backend: Backend | None = None, producer: MakeProducer = Producer
    ) -> None:
        self._task_config = task_config
        self._backend = backend or best_backend(task_config.kafka)
        self._producer = producer

    def consumer(self) -> Reader:
        """Make the task's consumer."""
        return self._backend.consumer(self._task_config)

    def writer(self, partition: Partition, consumer: Reader) -> TransactionalWriter | AcknowledgedWriter:
        """Make the writer of one source partition."""
        task_config = self._task_config
        if task_config.guarantee is Guarantee.EXACTLY_ONCE:
            sender = self._backend.sender(
                task_config, partition, settings.transactional_producer(task_config, partition), self._producer
            )
            return TransactionalWriter(partition, sender, consumer.client)
        sender = self._backend.reporting_sender(task_config, partition, settings.producer(task_config), self._producer)
        return AcknowledgedWriter(partition, sender, consumer.client)


def best_backend(kafka: Mapping[str, str]) -> Backend:
    """Give the fastest way that works in this process with these settings of Kafka; say so if it is not bulk."""
    if why := why_not_bulk(kafka):
        _say_once(why)
        return PLAIN
    return _bulk()


@cache
def _say_once(why: str) -> None:
    log.warning("records pass as Python objects here, which costs more CPU: %s", why)


def explain_backend(kafka: Mapping[str, str]) -> str:
    """Say in a line which way this machine will use, and why."""
    if why := why_not_bulk(kafka):
        return f"plain, because {why}"
    return f"bulk, because Numba and librdkafka {libversion()[0]} are as they must be"


def _bulk() -> Backend:
    from app.kafka.bulk.consumer import BulkConsumer, BulkSender, ReportingBulkSender

    return Backend("bulk", BulkConsumer, BulkSender, ReportingBulkSender)


def why_not_bulk(kafka: Mapping[str, str]) -> str:
    """Say why records must pass as Python objects; empty if they need not."""
    if kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "")).upper() == "OAUTHBEARER":
        return "OAUTHBEARER renews its tokens while confluent-kafka polls"
    return _problem()


@cache
def _problem() -> str:
    try:
        import_module("app.kafka.bulk.consumer")
        native = import_module("app.kafka.bulk.native")
    except (ImportError, OSError, AttributeError) as error:  # no Numba; a broken LLVM; a librdkafka that lacks a call
        return str(error)
    return str(native.problem())
