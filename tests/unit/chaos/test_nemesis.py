"""The nemesis injects all faults, in an order that the seed decides."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

from tests.chaos.failpoints import POINTS, Failpoints
from tests.chaos.nemesis import HARM, KILLS, ONCE, schedule


def test_a_seed_repeats_its_faults() -> None:
    """The same seed gives the same faults in the same order; another seed another order."""
    first, again, other = (list(islice(schedule(list(HARM), random.Random(seed)), 200)) for seed in (1, 1, 2))

    assert first == again != other
    assert set(HARM) == set(first)
    assert [1] * len(ONCE) == [first.count(name) for name in ONCE]


def test_every_kind_of_process_is_killed_as_often_as_listed() -> None:
    """In a run that only kills, each turn has all the kills of the list."""
    turn = Counter(islice(schedule(KILLS, random.Random(1)), len(KILLS)))

    assert Counter(KILLS) == turn
    assert set(KILLS) <= set(HARM)


def test_only_one_worker_is_hit(tmp_path: Path) -> None:
    """An armed point hits the first process that passes it, and reports its pid; it spares the next one."""
    program = f"from tests.chaos.failpoints import *\nwith Failpoints({str(tmp_path)!r}).around('send'): print('sent')"
    points = Failpoints(tmp_path)
    points.arm("before-send", signal.SIGKILL)

    first, second = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False) for _ in range(2)
    )

    assert (-signal.SIGKILL, "") == (first.returncode, first.stdout)
    assert (0, "sent\n") == (second.returncode, second.stdout)
    assert points.await_hit("before-send", 1)
    assert "before-send" in POINTS
