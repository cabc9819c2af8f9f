"""Sets clocks."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.clocks import DRIVER, WORKERS
from tests.chaos.cluster import System
from tests.chaos.harm.base import expect_progress
from tests.chaos.load import Load

JUMPS = (-3_600, -60, 60, 3_600)
"""Seconds."""
FAR_JUMPS = (-86_400, *JUMPS, 86_400)
"""The same, for a clock beside one that is right: two that are wrong by more than an hour make dead letters of good lines."""


@contextmanager
def jump(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Set the clock of the driver, of the workers or of both; some seconds later, set it right again."""
    assert system.clocks is not None
    forked = system.size.forked  # so that the workers have the driver's clock
    chosen = [DRIVER] if forked else rng.choice([[DRIVER], [WORKERS], [DRIVER, WORKERS]])
    far = len(chosen) == 1 and not forked
    jumps = {who: rng.choice(FAR_JUMPS if far else JUMPS) for who in chosen}
    told = ", ".join(f"{who} {seconds:+,d} s" for who, seconds in jumps.items())
    for who, seconds in jumps.items():
        system.clocks.set(who, seconds)
    yield told
    expect_progress(system, range(system.partitions), f"after a jump ({told})")
    time.sleep(rng.uniform(10, 20))
    for who in jumps:
        system.clocks.set(who, 0)
    expect_progress(system, range(system.partitions), f"after clocks were set right ({told})")
