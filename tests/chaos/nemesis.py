"""Injects faults: seeded, recorded, one after the other. What each of them does is in `harm`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.cluster import System
from tests.chaos.failpoints import POINTS
from tests.chaos.harm import brokers, coordinators, network, processes, quotas, refusals, source, together
from tests.chaos.harm.base import Harm, inflicted
from tests.chaos.load import Load

ANYWHERE: Mapping[str, Harm] = {
    **processes.ANYWHERE,
    **brokers.ANYWHERE,
    **network.ANYWHERE,
    **quotas.ANYWHERE,
    **source.ANYWHERE,
    **processes.FAILPOINTS,
    **together.ANYWHERE,
}
ON_A_CLUSTER: Mapping[str, Harm] = {
    **processes.ON_A_CLUSTER,
    **brokers.ON_A_CLUSTER,
    **network.ON_A_CLUSTER,
    **coordinators.ON_A_CLUSTER,
}
HARM: Mapping[str, Harm] = {**ANYWHERE, **ON_A_CLUSTER, **{name: kind.harm for name, kind in refusals.KINDS.items()}}
ONCE = ("partitions added",)
KILLS: Sequence[str] = [
    *["worker killed"] * 10,
    *["executor killed"] * 5,
    *["Spark worker killed"] * 3,
    *["Spark master killed"] * 1,
    *["driver killed"] * 2,
    *["broker killed"] * 3,
]
"""The kills of one turn, for runs that only kill processes."""
STORM: Sequence[str] = [
    *KILLS,
    *(f"killed {point}" for point in POINTS),
    *["connections cut"] * 3,
    *(name for name in network.ANYWHERE if name.endswith("held") and name != "WriteTxnMarkers held"),
]
"""The faults of one turn that take seconds, for runs with very many of them. No client withstands late markers."""


class Nemesis:
    """Injects one fault after the other, and records each with the state of the system."""

    def __init__(self, system: System, load: Load, rng: random.Random) -> None:
        """Prepare; nothing happens yet."""
        self._system, self._load, self._rng = system, load, rng

    def strike(self, name: str) -> None:
        """Inject a fault, repair it, and start the service again if it has ended."""
        told = refusals.KINDS[name].told if name in refusals.KINDS else ""
        with inflicted(name, HARM[name], self._system, self._load, self._rng, told=told):
            for driver in self._system.drivers:
                driver.record_log()
            self._system.bury_drivers()
        self._system.revive()


def schedule(names: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Yield faults for ever: turn after turn all of them, in random order; the faults in ONCE only in the first turn."""
    pool = list(names)
    while True:
        rng.shuffle(pool)
        yield from pool
        pool = [name for name in pool if name not in ONCE] or pool


def usual(system: System) -> list[str]:
    """Return the faults that a system of this size can have, except those that have a run of their own."""
    return [*ANYWHERE, *(ON_A_CLUSTER if system.spark else ())]
