"""Does two or three kinds of harm at once: what each of them spares, another may need."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from tests.chaos.cluster import System
from tests.chaos.harm import brokers, coordinators, network, processes, quotas
from tests.chaos.harm.base import Harm, inflicted
from tests.chaos.load import Load

APART_SECONDS = 4.0
"""So long after the first the last one begins, at most."""


class Theme(NamedTuple):
    """Kinds of harm of which one is done at a time: two of them would need the same victim, or leave nothing."""

    anywhere: Mapping[str, Harm]
    on_a_cluster: Mapping[str, Harm]

    def kinds(self, *, cluster: bool) -> Mapping[str, Harm]:
        """Return those that a system can have."""
        return {**self.anywhere, **(self.on_a_cluster if cluster else {})}


THEMES = (
    Theme({**processes.ANYWHERE, **processes.FAILPOINTS}, processes.ON_A_CLUSTER),
    Theme(network.ANYWHERE, network.ON_A_CLUSTER),
    Theme(brokers.ANYWHERE, {**brokers.ON_A_CLUSTER, **coordinators.ON_A_CLUSTER}),
    Theme(quotas.ANYWHERE, {}),
)


class Part(NamedTuple):
    """One of the kinds, when it begins, and what decides its targets and times."""

    name: str
    harm: Harm
    after: float
    seed: float


def parts(rng: random.Random, *, cluster: bool) -> list[Part]:
    """Choose two or three kinds of different themes."""
    chosen = []
    for theme in rng.sample(THEMES, rng.randint(2, 3)):
        name, harm = rng.choice(list(theme.kinds(cluster=cluster).items()))
        chosen.append(Part(name, harm, rng.uniform(0, APART_SECONDS), rng.random()))
    return chosen


@contextmanager
def several(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Do several kinds of harm that overlap in time; each is recorded, too."""

    def inflict(part: Part) -> None:
        time.sleep(part.after)
        with inflicted(part.name, part.harm, system, load, random.Random(part.seed)):
            pass

    chosen = parts(rng, cluster=system.spark is not None)
    yield " + ".join(part.name for part in chosen)
    with ThreadPoolExecutor(len(chosen)) as threads:
        list(threads.map(inflict, chosen))


ANYWHERE: Mapping[str, Harm] = {"several at once": several}
