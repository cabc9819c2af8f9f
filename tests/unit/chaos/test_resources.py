"""What grows during a soak is told apart from noise, and from what a process takes until it is warm."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.grouped import Sample
from tests.chaos.resources import SAMPLE_SECONDS, slopes

HOUR = 3600


def samples(level: Callable[[float, random.Random], float], seconds: int, life: int) -> Iterator[Sample]:
    """Yield samples of processes that follow one another; `level` is of the hours since the start of the run."""
    rng = random.Random(1)
    for at in range(0, seconds, int(SAMPLE_SECONDS)):
        yield Sample(at, "driver", at // life, {"MiB": level(at / HOUR, rng), "log lines": at})


def grows(level: Callable[[float, random.Random], float], seconds: int = 3 * HOUR, life: int = 3 * HOUR) -> bool:
    memory, log = slopes(samples(level, seconds, life))
    assert not log.grows
    return memory.grows


@pytest.mark.parametrize("life", [HOUR // 4, 3 * HOUR])
@pytest.mark.parametrize(
    ("level", "leaks"),
    [
        (lambda _, __: 300.0, False),
        (lambda _, rng: 300.0 + rng.gauss(0, 50), False),
        (lambda hours, rng: 300.0 + 60 * hours + rng.gauss(0, 50), True),
        (lambda hours, _: 300.0 + 5 * hours, False),  # 2 % in an hour
    ],
    ids=["constant", "noise", "leak", "hardly"],
)
def test_a_leak_is_told_from_noise(level: Callable[[float, random.Random], float], life: int, *, leaks: bool) -> None:
    """Whether there is one process, or a later one each quarter of an hour."""
    assert leaks is grows(level, life=life)


def test_a_warm_up_is_no_leak() -> None:
    """Every process fills its caches in its first minutes."""
    assert not grows(lambda hours, _: 300.0 * min(1.0, 0.5 + (hours % 0.25) * 6), life=HOUR // 4)


def test_a_short_run_tells_nothing() -> None:
    """Half an hour without the warm-up is the least."""
    assert not grows(lambda hours, _: 300.0 + 600 * hours, seconds=HOUR // 2)
