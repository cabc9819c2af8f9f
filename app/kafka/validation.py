"""
Makes each client of a task once, to learn before anything starts whether librdkafka accepts their settings.

They get no brokers and no token endpoint, so they connect to nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer

from app.errors import Unreachable
from app.kafka import settings
from app.kafka.failures import error_of
from app.kafka.properties import BROKERS, LARGEST_BATCH, value_name
from app.model import Destination, Guarantee, Partition, Plugin, SinkKafka, TaskConfig
from app.secrets import hint

_TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  # a property's name
_NOWHERE = "http://127.0.0.1:9"
# How a message about several settings at once begins.
_FAILED = re.compile(r"Failed to create \w+: ")
# Values up to this length are masked only as whole words: otherwise every 5 in a text would be masked.
_SHORT = 3

Make = Callable[..., object]


class Refusal(NamedTuple):
    """The refused property as the user wrote it, empty if librdkafka names none; and the reason."""

    name: str
    problem: str


def refusals(
    kafka: Mapping[str, str], guarantee: Guarantee | None, section: str = "kafka", transaction_seconds: float = 60.0
) -> tuple[Refusal, ...]:
    """
    Return why librdkafka refuses a section's settings. No text repeats a value, which may be a secret.

    The guarantee is None if nothing is written to the cluster.

    librdkafka names one wrong property at a time, so those that it has named are left out of the next trial. Settings
    that do not fit together count only if each is right: without a wrong one, the rest need not fit.
    """
    found: dict[str, Refusal] = {}
    while True:
        left = {name: value for name, value in kafka.items() if name not in found}
        singly, together = _trial(left, guarantee, section, transaction_seconds)
        if not singly:
            return tuple((found or together).values())
        found |= singly


def _trial(
    kafka: Mapping[str, str], guarantee: Guarantee | None, section: str, transaction_seconds: float
) -> tuple[dict[str, Refusal], dict[str, Refusal]]:
    """Return the refused properties by name, and apart those that are refused only together with others."""
    none = Destination("none", 1, LARGEST_BATCH)
    cluster = SinkKafka(kafka) if section == "sink.kafka" else kafka
    parser, exactly_once = Plugin("none"), Guarantee.EXACTLY_ONCE
    config = TaskConfig(
        "none", exactly_once, none, none, "raw", parser, cluster, transaction_seconds=transaction_seconds
    )
    try:
        written = settings.common(cluster)
        clients: list[tuple[Make, settings.Settings]] = [(Consumer, settings.consumer(config))]
        if guarantee is Guarantee.EXACTLY_ONCE:
            clients.append((Producer, settings.transactional_producer(config, Partition("none", 0))))
        elif guarantee:
            clients.append((Producer, settings.producer(config)))
    except Unreachable as error:
        return {}, {"": Refusal("", str(error))}
    values = {name: str(written[value_name(name)]) for name in kafka}
    singly: dict[str, Refusal] = {}
    together: dict[str, Refusal] = {}
    for make, configured in clients:
        if text := _objection(make, configured):
            as_a_whole = bool(_FAILED.match(text))
            name = _name_in(text, values) or ("" if as_a_whole else _culprit(make, configured, values, text))
            among = together if as_a_whole or not name else singly
            among.setdefault(name, Refusal(name, _explained(section, name, text, values)))
    return singly, together


def _objection(make: Make, configured: settings.Settings) -> str:
    """Return why librdkafka or confluent-kafka refuses these settings; empty if they do not."""
    alone = {name: value for name, value in configured.items() if name not in BROKERS}
    if _TOKEN_ENDPOINT in alone:
        alone[_TOKEN_ENDPOINT] = _NOWHERE
    try:
        make(alone, logger=settings.SILENT)
    except KafkaException as error:
        return error_of(error).str()
    except (TypeError, ValueError) as error:  # from confluent-kafka, for a name that it reserves for a Python object
        return str(error)
    return ""


def _name_in(text: str, values: Mapping[str, str]) -> str:
    """Return the first of the user's properties that a text names; empty if it names none."""
    places = {name: re.search(_alone(value_name(name)), text) for name in values}
    named = {name: place.start() for name, place in places.items() if place}
    return min(named, key=lambda each: named[each], default="")


def _culprit(make: Make, configured: settings.Settings, values: Mapping[str, str], text: str) -> str:
    """Return the property without which the objection is another one; librdkafka may use another name for it."""
    for name in values:
        if _objection(make, {key: value for key, value in configured.items() if key != value_name(name)}) != text:
            return name
    return ""


def _explained(section: str, name: str, text: str, values: Mapping[str, str]) -> str:
    if text.startswith("No such configuration property"):
        right = hint(name) or "see its CONFIGURATION.md for the right name"
        return f"{section}.{name} is unknown to librdkafka: {right}"
    key = f"{section}.{name} is" if name else f"{section}: these settings are"
    said = f"{key} rejected by librdkafka: {_without(values, _FAILED.sub('', text))}"
    if name.endswith(".location") and not os.access(values[name], os.R_OK):
        said += "; the file is not readable: mount it on the driver and on all executors"
    return said


def _alone(word: str) -> str:
    """Return the pattern of a whole word, or of a whole dotted name."""
    return rf"(?<![\w.]){re.escape(word)}(?!\.?\w)"


def _without(values: Mapping[str, str], text: str) -> str:
    """Return the first line of a text, with all values masked."""
    for value in sorted(filter(None, values.values()), key=len, reverse=True):
        text = text.replace(value, "...") if len(value) > _SHORT else re.sub(_alone(value), "...", text)
    return next(iter(text.splitlines()), "")
