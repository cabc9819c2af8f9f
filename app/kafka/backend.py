"""Decides how records pass between librdkafka and us: `bulk`, or `plain` where that cannot be trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from confluent_kafka import Producer, libversion

from app.kafka.consumer import TaskConsumer
from app.kafka.delivery import CallbackDelivery, Delivery, MakeClient
from app.kafka.plain.consumer import PlainConsumer
from app.kafka.plain.sender import PlainSender
from app.kafka.sender import Sender, Targets
from app.model import TaskConfig

log = logging.getLogger("winnow.kafka")


@dataclass(frozen=True, slots=True)
class Backend:
    """
    One implementation of everything that sees each record.

    Args:
        name: what users call it.
        consumer: makes the consumer of a task.
        sender: makes what queues records for a producer.
        reporting: makes a producer whose undelivered records are reported, which at-least-once delivery needs.
    """

    name: str
    consumer: Callable[[TaskConfig], TaskConsumer]
    sender: Callable[[Producer, Targets], Sender]
    reporting: Callable[[MakeClient], Delivery]


PLAIN = Backend("plain", PlainConsumer, PlainSender, CallbackDelivery)


def best_backend(*clusters: Mapping[str, str]) -> Backend:
    """Return the fastest backend that works here with the settings of these clusters; log once why it is not bulk."""
    if why := why_not_bulk(*clusters):
        _warn_once(why)
        return PLAIN
    return _bulk()


def explain_backend(*clusters: Mapping[str, str]) -> str:
    """Return in a line which backend this machine uses, and why."""
    if why := why_not_bulk(*clusters):
        return f"plain, because {why}"
    return f"bulk, because Numba and librdkafka {libversion()[0]} are as they must be"


def why_not_bulk(*clusters: Mapping[str, str]) -> str:
    """Return why records must become Python objects here; empty if they need not."""
    mechanisms = (kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "")) for kafka in clusters)
    if any(mechanism.upper() == "OAUTHBEARER" for mechanism in mechanisms):
        return "OAUTHBEARER renews its tokens while confluent-kafka polls"
    return _problem()


@cache
def _warn_once(why: str) -> None:
    log.warning("records become Python objects here, which costs more CPU: %s", why)


def _bulk() -> Backend:
    from app.kafka.bulk.consumer import BulkConsumer
    from app.kafka.bulk.delivery import EventDelivery
    from app.kafka.bulk.sender import BulkSender

    return Backend("bulk", BulkConsumer, BulkSender, EventDelivery)


@cache
def _problem() -> str:
    try:
        import_module("app.kafka.bulk.consumer")
        native = import_module("app.kafka.bulk.native")
    except Exception as error:  # noqa: BLE001 - no Numba, or one that compiles otherwise; a librdkafka that lacks a call
        return str(error) or type(error).__name__
    return str(native.problem())
