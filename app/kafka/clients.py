"""The real clients of a task, made inside it: never before a fork, never shipped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from confluent_kafka import Producer, libversion

from app.kafka import settings
from app.kafka.consumer import PlainConsumer, Reader
from app.kafka.producer import AcknowledgedWriter, TransactionalWriter
from app.kafka.sender import MakeProducer, PlainSender, ReportingPlainSender
from app.model import Guarantee, Job, Partition


@dataclass(frozen=True, slots=True)
class Path:
    """One way for records to go between librdkafka and us."""

    name: str
    consumer: Callable[[Job], Reader]
    sender: type[PlainSender]
    reporting_sender: type[PlainSender]


log = logging.getLogger("winnow.kafka")
PLAIN = Path("plain", PlainConsumer, PlainSender, ReportingPlainSender)


class KafkaClients:
    """
    Makes consumer and writers as the job's guarantee asks for them.

    Args:
        job: what they are for.
        path: how records go; by default the best way that works here.
        producer: what makes librdkafka's producer from its settings.
    """

    def __init__(self, job: Job, path: Path | None = None, producer: MakeProducer = Producer) -> None:
        self._job = job
        self._path = path or best_path(job.kafka)
        self._producer = producer

    def consumer(self) -> Reader:
        """Make the task's consumer."""
        return self._path.consumer(self._job)

    def writer(self, partition: Partition, consumer: Reader) -> TransactionalWriter | AcknowledgedWriter:
        """Make the writer of one source partition."""
        job = self._job
        if job.guarantee is Guarantee.EXACTLY_ONCE:
            sender = self._path.sender(job, partition, settings.transactional_producer(job, partition), self._producer)
            return TransactionalWriter(partition, sender, consumer.client)
        sender = self._path.reporting_sender(job, partition, settings.producer(job), self._producer)
        return AcknowledgedWriter(partition, sender, consumer.client)


def best_path(kafka: Mapping[str, str]) -> Path:
    """Give the fastest way that works in this process with these settings of Kafka; say so if it is not bulk."""
    if why := why_not_bulk(kafka):
        _say_once(why)
        return PLAIN
    return _bulk()


@cache
def _say_once(why: str) -> None:
    log.warning("records pass as Python objects here, which costs more CPU: %s", why)


def explained(kafka: Mapping[str, str]) -> str:
    """Say in a line which way this machine will use, and why."""
    if why := why_not_bulk(kafka):
        return f"plain, because {why}"
    return f"bulk, because Numba and librdkafka {libversion()[0]} are as they must be"


def _bulk() -> Path:
    from app.kafka.bulk import BulkConsumer, BulkSender, ReportingBulkSender

    return Path("bulk", BulkConsumer, BulkSender, ReportingBulkSender)


def why_not_bulk(kafka: Mapping[str, str]) -> str:
    """Say why records must pass as Python objects; empty if they need not."""
    if kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "")).upper() == "OAUTHBEARER":
        return "OAUTHBEARER renews its tokens while confluent-kafka polls"
    return _problem()


@cache
def _problem() -> str:
    try:
        import_module("app.kafka.bulk")
        native = import_module("app.kafka.native")
    except (ImportError, OSError, AttributeError) as error:  # no Numba; a broken LLVM; a librdkafka that lacks a call
        return str(error)
    return str(native.problem())
