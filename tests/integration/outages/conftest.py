"""The broker that these tests kill, freeze and damage: one for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.embedded.broker import Broker
from tests.conftest import QUICK_JAVA


@pytest.fixture(scope="package")
def restarted() -> Iterator[Broker]:
    """Return the broker as the last test left it."""
    with Broker(java=QUICK_JAVA) as broker:
        yield broker


@pytest.fixture
def mortal(restarted: Broker) -> Broker:
    """Return a broker that the test may harm and leave dead."""
    if not restarted.pids:
        restarted.start()
    return restarted
