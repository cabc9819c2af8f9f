"""What grows during a soak is told apart from noise, and from what a restart begins anew."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.grouped import Sample
from tests.chaos.resources import SAMPLE_SECONDS, slopes

LIFE_SECONDS = 900


def lives(level: Callable[[float, random.Random], float], count: int = 12, seconds: int = LIFE_SECONDS) -> list[Sample]:
    """Return samples of as many processes, one after the other; `level` is of the hours since the start of each."""
    return list(_lives(level, count, seconds))


def _lives(level: Callable[[float, random.Random], float], count: int, seconds: int) -> Iterator[Sample]:
    rng = random.Random(1)
    for pid in range(count):
        for at in range(0, seconds, int(SAMPLE_SECONDS)):
            yield Sample(pid * seconds + at, "driver", pid, {"MiB": level(at / 3600, rng)})


def grows(level: Callable[[float, random.Random], float]) -> bool:
    (slope,) = slopes(lives(level))
    return slope.grows


@pytest.mark.parametrize(
    ("level", "leaks"),
    [
        (lambda _, __: 300.0, False),
        (lambda _, rng: 300.0 + rng.gauss(0, 20), False),
        (lambda hours, rng: 300.0 + 60 * hours + rng.gauss(0, 5), True),
        (lambda hours, rng: 300.0 + 5 * hours + rng.gauss(0, 0.1), False),  # 2 % in an hour
        (lambda hours, _: 300.0 * min(1.0, 0.5 + 10 * hours), False),  # its caches are full after three minutes
    ],
    ids=["constant", "noise", "leak", "hardly", "warm-up"],
)
def test_a_leak_is_told_from_noise(level: Callable[[float, random.Random], float], *, leaks: bool) -> None:
    """Each life has a level of its own, and does not count before it is warm."""
    assert leaks is grows(level)


def test_levels_of_lives_do_not_make_a_slope() -> None:
    """A later process that starts higher does not leak."""
    higher = [sample._replace(figures={"MiB": 300.0 + sample.pid}) for sample in lives(lambda *_: 0.0)]

    (slope,) = slopes(higher)

    assert 0 == slope.per_hour
    assert 12 == slope.lives


def test_a_short_life_tells_nothing() -> None:
    """Less than ten minutes are mostly warm-up."""
    assert [] == list(slopes(lives(lambda *_: 1.0, seconds=500)))
