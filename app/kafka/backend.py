"""Chooses how records pass between librdkafka and Python: `bulk`, or `plain` if bulk cannot be trusted here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from confluent_kafka import Producer, libversion

from app.events import Event
from app.kafka.consumer import TaskConsumer
from app.kafka.delivery import CallbackDelivery, Delivery, MakeClient
from app.kafka.plain.consumer import PlainConsumer
from app.kafka.plain.sender import PlainSender
from app.kafka.sender import Sender, Targets
from app.model import TaskConfig


@dataclass(frozen=True, slots=True)
class Backend:
    """
    One implementation of everything that touches each record.

    `reporting` makes a producer that reports undelivered records, which at-least-once delivery needs.
    """

    name: str
    consumer: Callable[[TaskConfig], TaskConsumer]
    sender: Callable[[Producer, Targets], Sender]
    reporting: Callable[[MakeClient], Delivery]


PLAIN = Backend("plain", PlainConsumer, PlainSender, CallbackDelivery)


def best_backend(*clusters: Mapping[str, str]) -> Backend:
    """Return the fastest backend that works here with these clusters' settings; log once why it is not bulk."""
    if why := why_not_bulk(*clusters):
        _warn_once(why)
        return PLAIN
    from app.kafka.bulk.consumer import BulkConsumer
    from app.kafka.bulk.sender import BulkSender, EventDelivery

    return Backend("bulk", BulkConsumer, BulkSender, EventDelivery)


def explain_backend(*clusters: Mapping[str, str]) -> str:
    if why := why_not_bulk(*clusters):
        return f"plain, because {why}"
    return f"bulk, because Numba and librdkafka {librdkafka()} are supported"


def expected_backend(*clusters: Mapping[str, str]) -> str:
    """Return the backend that tasks will use without loading it here; so a broken Numba is noticed only in tasks."""
    plain = _renews_tokens(*clusters) or find_spec("numba") is None or _problem_of("app.kafka.bulk.native")
    return PLAIN.name if plain else "bulk"


def why_not_bulk(*clusters: Mapping[str, str]) -> str:
    """Return why the bulk backend cannot be used here; empty if it can."""
    if _renews_tokens(*clusters):
        return "OAUTHBEARER tokens, except those of OIDC, are renewed only while confluent-kafka polls"
    return _problem_of("app.kafka.bulk.consumer")


def _renews_tokens(*clusters: Mapping[str, str]) -> bool:
    """Return whether a client needs its `poll` for that; librdkafka renews those of OIDC in a thread of its own."""
    by_poll = (kafka for kafka in clusters if kafka.get("sasl.oauthbearer.method", "").lower() != "oidc")
    mechanisms = (kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "")) for kafka in by_poll)
    return any(mechanism.upper() == "OAUTHBEARER" for mechanism in mechanisms)


def librdkafka() -> str:
    """Return the version of librdkafka."""
    return libversion()[0]


@cache
def _warn_once(why: str) -> None:
    Event.PLAIN_BACKEND.log(reason=why)


@cache
def _problem_of(module: str) -> str:
    """Return why a module of the bulk backend does not work here; empty if it does."""
    try:
        import_module(module)
        native = import_module("app.kafka.bulk.native")
    except Exception as error:  # noqa: BLE001 - Numba may be missing or incompatible, librdkafka may lack a function
        return str(error) or type(error).__name__
    return str(native.problem())
