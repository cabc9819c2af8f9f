"""
Stops workers, lets others take over, and resumes them: `python -m tests.chaos zombies`.

The harness stops a worker (SIGSTOP) at a named point of its flow, lets a successor take over its partition and finish
the work, and then resumes the first. Readers must not get anything of what it had begun. Each point is repeated, and
several partitions are tested in parallel.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos.alone import PARTITIONS, Testbed, Worker, outcome, run_task, testbed
from tests.chaos.failpoints import POINTS, Failpoints
from tests.support.waiting import PATIENCE

LINES = 20
"""Written before a worker starts, again after its point is armed, and again after the worker has stopped."""
LATEST_ARMING_SECONDS = 0.6
"""A point is armed at a random time up to this one after its worker was started."""


def run(times: int, seed: int, arm: str, folder: Path) -> Path:
    """Stop `times` workers at each point; return the path of the history."""
    rng = random.Random(seed)
    points = list(POINTS) * times
    rng.shuffle(points)
    with testbed(folder, seed=seed, arm=arm) as bed, ThreadPoolExecutor(PARTITIONS) as threads:
        lanes = [Lane(bed, number, arm, folder, random.Random(rng.random())) for number in range(PARTITIONS)]
        for done in [threads.submit(lane.make_zombies, points[lane.number :: PARTITIONS]) for lane in lanes]:
            done.result()
    return folder / "history.jsonl.gz"


class Lane:
    """One source partition whose workers are stopped one after the other."""

    def __init__(self, bed: Testbed, number: int, arm: str, folder: Path, rng: random.Random) -> None:
        """Create two folders for failpoints; those in the second are never armed."""
        self.number = number
        self._bed, self._arm, self._rng = bed, arm, rng
        self._armed, self._quiet = folder / f"points-{number}", folder / "no-points"
        self._armed.mkdir(parents=True)
        self._quiet.mkdir(exist_ok=True)

    def make_zombies(self, points: Sequence[str]) -> None:
        """Stop and resume a worker at each of these points."""
        for number, point in enumerate(points):
            self._make_zombie(point, f"{self.number}.{number}")

    def _make_zombie(self, point: str, name: str) -> None:
        bed, points = self._bed, Failpoints(self._armed)
        start = bed.written[self.number]
        offset_range = bed.offset_range(self.number, start, bed.write(self.number, LINES) + 2 * LINES)
        if "init" in point:
            points.arm(point, signal.SIGSTOP)
        zombie = Worker(run_task, bed.task_config, offset_range, self._armed, f"{name}.zombie.", self._arm)
        if "init" not in point:
            time.sleep(self._rng.uniform(0, LATEST_ARMING_SECONDS))
            points.arm(point, signal.SIGSTOP)
        bed.write(self.number, LINES)
        pid = points.await_hit(point, PATIENCE)
        assert pid, f"no worker passed {point}"
        bed.write(self.number, LINES)
        began = bed.recorder.now
        Worker(run_task, bed.task_config, offset_range, self._quiet, f"{name}.successor.", self._arm).result()
        bed.recorder.record("fault", name=f"zombie {point}", target=name, state={}, began=began)
        bed.recorder.record("taken over", zombie=f"{name}.zombie.", successor=f"{name}.successor.")
        os.kill(pid, signal.SIGCONT)
        receipt = zombie.result()
        bed.recorder.record("healed", name=f"zombie {point}", target=name, ended=outcome(receipt))
