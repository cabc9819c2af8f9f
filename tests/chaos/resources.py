"""
What the service takes over hours: memory, threads, open files, the heap of its JVM, lines of its log.

`Sampler` records it, `slopes` tells what grows. A take-over or a kill begins anew, so a slope is that of processes of one
kind, each measured from its own start: what leaks grows within every life.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from tests.chaos.cluster import System
from tests.chaos.driver import heap_log
from tests.chaos.grouped import Sample
from tests.chaos.readers import Background
from tests.support.spark import jvms

Points = NDArray[np.float64]
SAMPLE_SECONDS = 10.0
WARM_UP_SECONDS = 300.0
"""A process still fills its caches, and a JVM compiles."""
SHORTEST_LIFE_SECONDS = 300.0
"""After the warm-up; a shorter one says nothing."""
LEAST_GROWTH = 0.05
"""The share of its mean by which something must grow in an hour before it counts."""
MEASURES = ("MiB", "threads", "files", "heap MiB", "log lines")
HEAP_LEFT = re.compile(r"->(?P<left>\d+)M\(\d+M\)")


class Sampler(Background):
    """Records what the drivers, their JVMs and the workers take."""

    def __init__(self, system: System) -> None:
        """Prepare."""
        super().__init__()
        self._system = system

    def step(self) -> None:
        """Record one sample of each process."""
        self._stop.wait(SAMPLE_SECONDS)
        for kind, process, more in self._processes():
            try:
                with process.oneshot():
                    memory, threads, files = process.memory_info().rss, process.num_threads(), process.num_fds()
            except psutil.Error:
                continue  # it has ended
            figures = {"MiB": round(memory / 2**20, 1), "threads": threads, "files": files, **more}
            self._system.recorder.record("sample", process=kind, pid=process.pid, figures=figures)

    def _processes(self) -> Iterator[tuple[str, psutil.Process, dict[str, float]]]:
        for driver in [each for each in self._system.drivers if each.alive]:
            try:
                process = psutil.Process(driver.pid)
                below = list(jvms(process.children()))
            except psutil.NoSuchProcess:
                continue
            yield "driver", process, {"log lines": len(driver.events) + len(driver.noise)}
            for jvm in below:
                yield "JVM", jvm, self._heap(jvm.pid)
        for worker in self._system.workers:
            yield "worker", worker, {}

    def _heap(self, pid: int) -> dict[str, float]:
        """Return what the last collection has left; nothing before the first one."""
        try:
            found = HEAP_LEFT.findall(heap_log(self._system.folder, pid).read_text())
        except OSError:
            return {}
        return {"heap MiB": float(found[-1])} if found else {}


class Slope(NamedTuple):
    """
    How a measure of processes of one kind changes with their age.

    Args:
        kind: of the processes.
        measure: what was measured.
        mean: of all samples after the warm-up.
        per_hour: the slope.
        noise: twice its standard error.
        lives: how many processes it is from.
    """

    kind: str
    measure: str
    mean: float
    per_hour: float
    noise: float
    lives: int

    @property
    def grows(self) -> bool:
        """Whether it rises beyond the noise. Log lines always rise."""
        return self.measure != "log lines" and self.per_hour - self.noise > LEAST_GROWTH * self.mean


def slopes(samples: Iterable[Sample]) -> Iterator[Slope]:
    """Yield the slope of each measure of each kind of process that lived long enough."""
    lives: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        for measure, figure in sample.figures.items():
            lives[sample.kind, measure][sample.pid].append((sample.at, figure))
    for (kind, measure), of_pid in sorted(lives.items(), key=lambda each: (each[0][0], MEASURES.index(each[0][1]))):
        grown = [points for rows in of_pid.values() if len(points := _after_warm_up(rows)) > 2]
        if grown:
            yield _slope(kind, measure, grown)


def _after_warm_up(rows: list[tuple[float, float]]) -> Points:
    """Return hours and figures of a life, without its warm-up; nothing if it was too short."""
    points: Points = np.array(rows)
    points = points[points[:, 0] >= points[0, 0] + WARM_UP_SECONDS]
    if not len(points) or np.ptp(points[:, 0]) < SHORTEST_LIFE_SECONDS:
        return np.empty((0, 2))
    points[:, 0] /= 3600.0
    return points


def _slope(kind: str, measure: str, lives: list[Points]) -> Slope:
    """Fit one slope to all lives, each with a level of its own (least squares)."""
    centred = np.concatenate([points - points.mean(axis=0) for points in lives])
    hours, figures = centred.T
    spread = float(hours @ hours)
    per_hour = float(hours @ figures) / spread
    freedom = max(1, len(hours) - len(lives) - 1)
    left = figures - per_hour * hours
    error = float(np.sqrt(left @ left / freedom / spread))
    mean = float(np.concatenate([points[:, 1] for points in lives]).mean())
    return Slope(kind, measure, mean, per_hour, 2 * error, len(lives))
