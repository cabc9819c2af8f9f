"""
Zombies: `python -m tests.chaos zombies`.

A worker is stopped (SIGSTOP) at a named point of its flow, another takes its partition over and does the work, and then
the first goes on. Nothing of what it had begun may be seen. Each point many times, several partitions side by side.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos.alone import PARTITIONS, Stage, Worker, run_task, stage, told
from tests.chaos.failpoints import POINTS, Failpoints

LINES = 20
"""Written before a worker starts, again when its point is armed, and again when it is stopped."""
LATEST_SECONDS = 0.6
"""A worker may pass its points for so long before the one is armed at which it stops."""
PATIENCE = 60.0


def run(times: int, seed: int, arm: str, folder: Path) -> Path:
    """Stop a worker at each point so many times; return the path of the history."""
    dice = random.Random(seed)
    points = list(POINTS) * times
    dice.shuffle(points)
    with stage(folder, seed=seed, arm=arm) as made, ThreadPoolExecutor(PARTITIONS) as threads:
        lanes = [Lane(made, number, arm, folder, random.Random(dice.random())) for number in range(PARTITIONS)]
        for done in [threads.submit(lane.haunt, points[lane.number :: PARTITIONS]) for lane in lanes]:
            done.result()
    return folder / "history.jsonl.gz"


class Lane:
    """One source partition, whose owners are stopped one after the other."""

    def __init__(self, made: Stage, number: int, arm: str, folder: Path, dice: random.Random) -> None:
        """Make folders for the points: one that is armed, one that never is."""
        self.number = number
        self._stage, self._arm, self._dice = made, arm, dice
        self._armed, self._quiet = folder / f"points-{number}", folder / "no-points"
        self._armed.mkdir(parents=True)
        self._quiet.mkdir(exist_ok=True)

    def haunt(self, points: Sequence[str]) -> None:
        """Make a zombie at each of these points."""
        for number, point in enumerate(points):
            self._haunt(point, f"{self.number}.{number}")

    def _haunt(self, point: str, name: str) -> None:
        made, points = self._stage, Failpoints(self._armed)
        start = made.written[self.number]
        offset_range = made.offset_range(self.number, start, made.write(self.number, LINES) + 2 * LINES)
        if "init" in point:
            points.arm(point, signal.SIGSTOP)
        zombie = Worker(run_task, made.task_config, offset_range, self._armed, f"{name}.zombie.", self._arm)
        if "init" not in point:
            time.sleep(self._dice.uniform(0, LATEST_SECONDS))
            points.arm(point, signal.SIGSTOP)
        made.write(self.number, LINES)
        pid = points.await_hit(point, PATIENCE)
        assert pid, f"nobody came to {point}"
        made.write(self.number, LINES)
        began = made.recorder.now
        Worker(run_task, made.task_config, offset_range, self._quiet, f"{name}.successor.", self._arm).result()
        made.recorder.record("fault", name=f"zombie {point}", target=name, state={}, began=began)
        made.recorder.record("taken over", zombie=f"{name}.zombie.", successor=f"{name}.successor.")
        os.kill(pid, signal.SIGCONT)
        receipt = zombie.result()
        made.recorder.record("healed", name=f"zombie {point}", target=name, ended=told(receipt))
