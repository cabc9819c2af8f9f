"""Fills the disk of a broker."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.cluster import SHORT_OF_SPACE, System, until
from tests.chaos.harm.base import PATIENCE, Missed, bring_back, expect_progress
from tests.chaos.load import Load


@contextmanager
def full(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Leave a broker no space for what it must append, which ends it; make room and start it again."""
    ballast = system.broker.folder / f"node-{SHORT_OF_SPACE}" / "ballast"
    _fill(ballast)
    yield f"node {SHORT_OF_SPACE}"
    ended = until(lambda: SHORT_OF_SPACE not in system.broker.running, PATIENCE)
    time.sleep(rng.uniform(0, 6))
    expect_progress(system, range(system.partitions), "beside a broker whose disk is full")
    ballast.unlink()
    if SHORT_OF_SPACE not in system.broker.running:
        bring_back(system, SHORT_OF_SPACE)
    until(lambda: system.broker.in_sync, PATIENCE)
    if not ended:
        message = f"node {SHORT_OF_SPACE} went on without space"
        raise Missed(message)


def _fill(ballast: Path) -> None:
    """Write until nothing is left: a broker takes space meanwhile, so how much there is cannot be asked."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
