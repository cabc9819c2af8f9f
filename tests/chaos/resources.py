"""
What the service takes over hours: memory, threads, open files, the heap of its JVM, lines of its log.

`Sampler` records it, `slopes` tells what grows. A take-over begins anew: what leaks in a driver shows without take-overs.
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
STRETCH_SECONDS = 300.0
FEWEST_STRETCHES = 6
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
    How a measure of the processes of one kind changes during a run.

    Args:
        kind: of the processes.
        measure: what was measured.
        mean: of all stretches.
        per_hour: the slope.
        noise: twice its standard error.
        stretches: of how many it is.
    """

    kind: str
    measure: str
    mean: float
    per_hour: float
    noise: float
    stretches: int

    @property
    def grows(self) -> bool:
        """Whether it rises beyond the noise, in a run that is long enough to say so. Log lines always rise."""
        beyond = self.per_hour - self.noise > LEAST_GROWTH * self.mean
        return beyond and self.measure != "log lines" and self.stretches >= FEWEST_STRETCHES


def slopes(samples: Iterable[Sample]) -> Iterator[Slope]:
    """Yield the slope of each measure of each kind of process."""
    began: dict[int, float] = {}
    stretches: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        if sample.at >= began.setdefault(sample.pid, sample.at) + WARM_UP_SECONDS:
            for measure, figure in sample.figures.items():
                stretches[sample.kind, measure][int(sample.at // STRETCH_SECONDS)].append(figure)
    for (kind, measure), figures in sorted(
        stretches.items(), key=lambda each: (each[0][0], MEASURES.index(each[0][1]))
    ):
        if len(figures) > 2:
            hours = np.array(list(figures)) * STRETCH_SECONDS / 3600
            yield _slope(kind, measure, hours, np.array([float(np.mean(each)) for each in figures.values()]))


def _slope(kind: str, measure: str, hours: Points, means: Points) -> Slope:
    """Fit a line by least squares. Neighbouring samples are alike, the means of stretches much less."""
    x, y = hours - hours.mean(), means - means.mean()
    spread = float(x @ x)
    per_hour = float(x @ y) / spread
    left = y - per_hour * x
    error = float(np.sqrt(left @ left / (len(x) - 2) / spread))
    return Slope(kind, measure, float(means.mean()), per_hour, 2 * error, len(x))
