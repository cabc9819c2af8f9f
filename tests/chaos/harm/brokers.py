"""Takes brokers away."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.chaos.cluster import System, stopped, until
from tests.chaos.harm.base import BEYOND_THE_TIMEOUT, PATIENCE, Harm, bring_back
from tests.chaos.load import Load


def _broker_down(choose: Callable[[System, random.Random], int], *, hard: bool) -> Harm:
    @contextmanager
    def down(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        node = choose(system, rng)
        (system.broker.kill if hard else system.broker.stop)(node)
        yield f"node {node}"
        time.sleep(rng.uniform(0, 6))
        bring_back(system, node)

    return down


def _any_node(system: System, rng: random.Random) -> int:
    return rng.choice(system.broker.nodes)


def _transaction_coordinator(system: System, rng: random.Random) -> int:
    return system.transaction_coordinator(rng.randrange(system.size.partitions))


def _group_coordinator(system: System, rng: random.Random) -> int:
    return system.group_coordinator()


@contextmanager
def broker_stopped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Stop a broker by SIGSTOP until the others take over; it resumes with old requests in its queues."""
    node = _any_node(system, rng)
    with stopped(system.broker.process(node)):
        yield f"node {node}"
        time.sleep(rng.uniform(6, BEYOND_THE_TIMEOUT))
    until(lambda: system.broker.in_sync, PATIENCE)


ANYWHERE: Mapping[str, Harm] = {
    "broker killed": _broker_down(_any_node, hard=True),
    "broker shut down": _broker_down(_any_node, hard=False),
    "broker stopped": broker_stopped,
}
ON_A_CLUSTER: Mapping[str, Harm] = {
    "transaction coordinator killed": _broker_down(_transaction_coordinator, hard=True),
    "transaction coordinator shut down": _broker_down(_transaction_coordinator, hard=False),
    "group coordinator killed": _broker_down(_group_coordinator, hard=True),
    "group coordinator shut down": _broker_down(_group_coordinator, hard=False),
}
