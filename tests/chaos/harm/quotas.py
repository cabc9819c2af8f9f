"""Lets the brokers slow the service down."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.chaos.brokers import USER
from tests.chaos.cluster import System
from tests.chaos.harm.base import Harm, expect_progress
from tests.chaos.load import Load
from tests.chaos.protocol import set_quotas

QUOTAS: Mapping[str, tuple[int, int]] = {
    "producer_byte_rate": (2_000, 40_000),
    "consumer_byte_rate": (2_000, 40_000),
    "request_percentage": (1, 5),
}
"""Between which bounds a quota is chosen: too little for the load on each broker, as a rule."""


@contextmanager
def throttled(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Give the service's user one or more quotas for some seconds."""
    chosen = {name: float(rng.randint(*QUOTAS[name])) for name in rng.sample(list(QUOTAS), rng.randint(1, len(QUOTAS)))}
    set_quotas(system.broker.bootstrap, USER, chosen)
    yield ", ".join(f"{name} {value:,.0f}" for name, value in chosen.items())
    time.sleep(rng.uniform(10, 20))
    set_quotas(system.broker.bootstrap, USER, dict.fromkeys(chosen))
    expect_progress(system, range(system.partitions), "after a quota has gone")


ANYWHERE: Mapping[str, Harm] = {"throttled": throttled}
