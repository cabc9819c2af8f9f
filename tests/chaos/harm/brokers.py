"""Takes brokers and connections away."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.chaos.cluster import System, stopped, until
from tests.chaos.harm.base import BEYOND_THE_TIMEOUT, PATIENCE, Harm, bring_back
from tests.chaos.load import Load
from tests.chaos.proxy import END_TXN, TXN_OFFSET_COMMIT

HELD = 12
"""So many late requests suffice: some of them meet the next transaction half-way."""


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


@contextmanager
def connections_cut(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Cut all connections between the service and Kafka, a few times."""
    yield "all"
    for _ in range(rng.randint(1, 5)):
        system.proxy.cut()
        time.sleep(rng.uniform(0.1, 1))


@contextmanager
def connections_delayed(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Delay each request."""
    system.proxy.delay = rng.uniform(0.02, 0.5)
    yield f"{system.proxy.delay:.2f} s"
    time.sleep(rng.uniform(3, 8))
    system.proxy.delay = 0


@contextmanager
def connections_dropped(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Drop all traffic between the service and Kafka for a while, then cut the connections."""
    system.proxy.dropping = True
    yield "all"
    time.sleep(rng.uniform(2, 20))
    system.proxy.dropping = False
    system.proxy.cut()


def _held(held: int) -> Harm:
    @contextmanager
    def hold(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        """Cut connections while such a request is in flight, and deliver it after the next transaction has begun."""
        before = system.proxy.held
        system.proxy.hold_seconds = lambda api: rng.uniform(0.2, 2) if api == held and rng.random() < 0.3 else None
        yield "a third of the commits"
        until(lambda: system.proxy.held >= before + HELD, PATIENCE)
        system.proxy.hold_seconds = lambda api: None

    return hold


ANYWHERE: Mapping[str, Harm] = {
    "broker killed": _broker_down(_any_node, hard=True),
    "broker shut down": _broker_down(_any_node, hard=False),
    "broker stopped": broker_stopped,
    "connections cut": connections_cut,
    "connections delayed": connections_delayed,
    "connections dropped": connections_dropped,
    "EndTxn held": _held(END_TXN),
    "TxnOffsetCommit held": _held(TXN_OFFSET_COMMIT),
}
ON_A_CLUSTER: Mapping[str, Harm] = {
    "transaction coordinator killed": _broker_down(_transaction_coordinator, hard=True),
    "transaction coordinator shut down": _broker_down(_transaction_coordinator, hard=False),
    "group coordinator killed": _broker_down(_group_coordinator, hard=True),
    "group coordinator shut down": _broker_down(_group_coordinator, hard=False),
}
