"""Moves the coordinators of transactions and of the group to other nodes, as an operator does who empties a node."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.chaos.brokers import GROUPS, TRANSACTIONS
from tests.chaos.cluster import System, until
from tests.chaos.harm.base import PATIENCE, Harm, bring_back, expect_progress
from tests.chaos.load import Load
from tests.chaos.protocol import reassign

IDLE_SECONDS = 5.0
"""Long enough that the service has committed everything and has only its signs of life to write."""


def _moved(
    topic: str, name: Callable[[System, random.Random], str], *, at_rest: bool = False, gone: bool = False
) -> Harm:
    """
    Move a coordinator's partition away from its leader, and back.

    Args:
        topic: the internal topic.
        name: what the coordinator is asked about: a transactional id or the group.
        at_rest: whether nothing is written meanwhile.
        gone: whether the node, which coordinates nothing any more, is then shut down (librdkafka #5511).
    """

    @contextmanager
    def moved(system: System, load: Load, rng: random.Random) -> Iterator[str]:
        broker, asked = system.broker, name(system, rng)
        before = broker.coordinates(topic, asked)
        others = [node for node in before.replicas if node != before.leader]
        rng.shuffle(others)
        load.pause = at_rest
        time.sleep(IDLE_SECONDS if at_rest else 0)
        reassign(broker.bootstrap, topic, before.id, others)
        yield f"{topic}-{before.id} from node {before.leader}"
        until(lambda: broker.coordinator(topic, asked) in others, PATIENCE)
        if gone:
            broker.stop(before.leader)
        load.pause = False
        expect_progress(system, range(system.partitions), "after the coordinator has moved")
        if gone:
            bring_back(system, before.leader)
        reassign(broker.bootstrap, topic, before.id, [*others, before.leader])
        until(lambda: broker.in_sync and len(broker.coordinates(topic, asked).isrs) > len(others), PATIENCE)

    return moved


def _any_transaction(system: System, rng: random.Random) -> str:
    return system.transactional_id(rng.randrange(system.size.partitions))


def _group(system: System, rng: random.Random) -> str:
    return system.name


ON_A_CLUSTER: Mapping[str, Harm] = {
    "transaction coordinator moved": _moved(TRANSACTIONS, _any_transaction),
    "transaction coordinator moved at rest": _moved(TRANSACTIONS, _any_transaction, at_rest=True),
    "transaction coordinator moved, node gone": _moved(TRANSACTIONS, _any_transaction, gone=True),
    "group coordinator moved": _moved(GROUPS, _group),
    "group coordinator moved at rest": _moved(GROUPS, _group, at_rest=True),
    "group coordinator moved, node gone": _moved(GROUPS, _group, gone=True),
}
