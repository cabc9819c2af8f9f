"""Processes are killed while records flow: no record is lost, duplicated or out of order."""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from app.demo.feed import load
from app.demo.lines import Recipe
from app.demo.verify import Verification
from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Feeder, amiss, read
from tests.integration.service import Winnow, WinnowOnSpark, kill_a_worker, settings
from tests.support.waiting import PATIENCE, alive_after, until

KILLS, LONG_KILLS = 3, 20
SLICE = 25_000
"""How many more records may flow before each kill. The last of them follow the last kill."""
PARTITIONS = 4


class Slices:
    """Releases records to the source topic in slices, so that some flow whenever a worker is killed."""

    def __init__(self) -> None:
        """Release the first slice."""
        self._news = threading.Condition()
        self._allowed, self._produced = SLICE, 0

    def open(self, slices: int = 1) -> None:
        """Release more slices."""
        with self._news:
            self._allowed += slices * SLICE
            self._news.notify_all()

    def wait(self, produced: int) -> None:
        """Count more records, and block a producer that has written all records released so far."""
        with self._news:
            self._produced += produced
            released = self._news.wait_for(lambda: self._produced < self._allowed, PATIENCE)
            assert released, "no slice was let in any more"


def test_workers_are_killed(broker: Cluster, topics: Topics, tmp_path: Path, long: bool) -> None:
    """Spark's workers are killed under load: an independent reader finds each record once and in order."""
    kills = LONG_KILLS if long else KILLS
    recipe = Recipe(partitions=PARTITIONS, count=kills * SLICE, bad=0.02, enveloped=0.1)
    seed = int(os.environ.get("KILLS_SEED", random.randrange(1 << 32)))
    print(f"to kill at the same moments again: KILLS_SEED={seed}")
    dice, gate = random.Random(seed), Slices()
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    config["source"]["format"] = "auto"

    with (
        WinnowOnSpark(config, tmp_path) as service,
        Verification(broker.bootstrap, recipe, source=source, sink=sink, dead_letters=dead) as verification,
        ThreadPoolExecutor(1) as feeder,
    ):
        loading = feeder.submit(load, broker.bootstrap, source, recipe, progress=gate.wait)
        killed: list[int] = []
        try:
            for number in range(kills):
                watch_until(verification, number * SLICE + dice.randrange(SLICE // 2))
                watch_for(verification, dice.uniform(0, 0.5))
                killed.append(kill_a_worker(service, dice).pid)
                gate.open()
        finally:
            gate.open(kills)
        loading.result(PATIENCE)
        watch_until(verification, recipe.count)
        code, left = service.stop(), service.leftovers()
        verdict = verification.finish(PATIENCE)

    assert kills == len(killed) == len(set(killed))
    assert service.logged("task_lost")
    assert 0 == code
    assert {} == verdict.faults
    assert verdict.out + verdict.dead == recipe.count
    assert [] == left


def test_the_jvm_is_killed(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A SIGKILL of Spark's JVM ends the service with 3 and one line with the cause. The next run continues."""
    source, sink, dead = topics("raw", 2), topics("clean", 2), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)

    with Feeder(broker.bootstrap, source, 2) as feeder:
        with WinnowOnSpark(config, tmp_path) as service:
            until(lambda: len(read(broker.bootstrap, sink)) > 300, "a flow")
            below = psutil.Process(service.pid).children(recursive=True)  # those of a dead JVM are not below it
            service.java[0].kill()
            code, left = service.code(), alive_after(below)
        until(lambda: feeder.written.total() > 1_500)
    with Winnow(config, tmp_path, "--until-end") as again:
        last = again.code()

    assert [3, 0] == [code, last]
    (error,) = [text for text in service.noise if text.startswith("winnow:")]
    assert "Spark ended while Winnow was running" in error
    assert {} == amiss(feeder.written, read(broker.bootstrap, sink))
    assert [] == left


def watch_until(verification: Verification, records: int) -> None:
    """Verify the output until this many records have arrived."""
    deadline = time.monotonic() + PATIENCE
    while (seen := verification.result()).out + seen.dead < records:
        assert time.monotonic() < deadline, f"{seen.out + seen.dead} of {records} records came within {PATIENCE} s"
        verification.poll()


def watch_for(verification: Verification, seconds: float) -> None:
    """Verify the output for this many seconds."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        verification.poll(left)
