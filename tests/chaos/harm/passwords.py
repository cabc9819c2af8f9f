"""Lets the service and the brokers disagree about the password."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.cluster import System, until
from tests.chaos.harm.base import PATIENCE, expect_progress
from tests.chaos.harm.processes import end_drivers
from tests.chaos.load import Load


@contextmanager
def wrong(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Restart the service with a wrong password; correct it when the service has ended, or after a minute."""
    right = system.password_file.read_text()
    end_drivers(system)
    system.password_file.write_text("wrong")
    system.start_driver()
    yield "the driver"
    _correct(system, right)


@contextmanager
def rotated(system: System, load: Load, rng: random.Random) -> Iterator[str]:
    """Change the brokers' password and cut all connections; the service's file follows later."""
    password = f"right-{rng.getrandbits(32):08x}"
    system.set_password(password)
    system.proxy.cut()
    yield "the brokers"
    _correct(system, password)


def _correct(system: System, password: str) -> None:
    until(lambda: not system.driver.alive, PATIENCE)
    system.password_file.write_text(password)
    system.revive()
    expect_progress(system, range(system.partitions), "after the password was corrected")
