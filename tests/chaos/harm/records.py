"""Writes records that the sink or the dead letters refuse, or makes the topics refuse what they took before."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.chaos.cluster import System
from tests.chaos.harm.base import expect_progress
from tests.chaos.lines import LARGE, LONG, OF_NEXT_YEAR, WITHOUT_KEY, Odd
from tests.chaos.load import Load

ODD_SECONDS = 8.0
LOW_LIMIT = "20000"


@contextmanager
def timestamp_refused(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Write lines of next year, which the sink refuses (`message.timestamp.after.max.ms` is an hour)."""
    yield "the sink"
    _write(OF_NEXT_YEAR, system, load)


@contextmanager
def size_refused(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Write rejects of 5 MB, which fit the dead-letter topic only compressed."""
    yield "the dead letters"
    _write(LARGE, system, load)


@contextmanager
def missing_key_refused(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Make the sink a compacted topic, and write lines without a key."""
    with _configured(system, "cleanup.policy", "compact"):
        yield "the sink"
        _write(WITHOUT_KEY, system, load)


@contextmanager
def limit_lowered(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Lower the largest batch that the sink takes, and write lines that are longer."""
    with _configured(system, "max.message.bytes", LOW_LIMIT):
        yield "the sink"
        _write(LONG, system, load)


def _write(odd: Odd, system: System, load: Load) -> None:
    """Write odd lines for some seconds; then each partition must get past them."""
    load.odd = odd
    time.sleep(ODD_SECONDS)
    load.odd = None
    expect_progress(system, range(system.partitions), "after a record that the broker refuses")


@contextmanager
def _configured(system: System, name: str, value: str) -> Iterator[None]:
    """Change the sink's configuration for the length of the block."""
    _alter(system, ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    yield
    _alter(system, ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE))


def _alter(system: System, entry: ConfigEntry) -> None:
    resource = ConfigResource(ResourceType.TOPIC, system.roles["sink"], incremental_configs=[entry])
    admin = system.broker.admin()
    admin.incremental_alter_configs([resource])[resource].result(30)
