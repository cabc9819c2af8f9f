"""The generator keeps its rate, whichever it is."""

from __future__ import annotations

from itertools import islice

import pytest

from app.demo.feed import paced
from tests.fakes.simulation import SimulatedTime


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimulatedTime()
    monkeypatch.setattr("app.demo.feed.time.monotonic", clock)
    monkeypatch.setattr("app.demo.feed.time.sleep", clock.pass_by)


@pytest.mark.parametrize("rate", [1, 7, 10, 999])
def test_a_rate_is_kept(rate: int) -> None:
    """Also one of less than a line per tick: it once wrote none."""
    written = [len(lines) for _, lines in paced(2, rate, 10.01)]

    assert rate * 10 <= sum(written) <= rate * 10 + max(1, rate // 10)


def test_the_partitions_take_turns() -> None:
    """Each gets its share."""
    assert [0, 1, 0, 1] == [number for number, _ in islice(paced(2, 100, 10), 4)]
