"""The service on a real Spark standalone cluster on loopback: a master and two workers, each in its own process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Feeder, Place, amiss, committed, ends, read
from tests.integration.service import QUICK_START, WinnowOnSpark, settings, working
from tests.standalone import StandaloneSpark
from tests.support.waiting import alive_after, until

PARTITIONS = 4


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    """Return a cluster of two workers."""
    with StandaloneSpark(tmp_path_factory.mktemp("spark"), workers=2) as cluster:
        yield cluster


def test_an_executor_is_killed(broker: Cluster, topics: Topics, spark: StandaloneSpark, tmp_path: Path) -> None:
    """After an executor is killed under load, each record comes out once, in order, and SIGTERM ends all processes."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead, round_interval="10s")
    config["spark"] |= {
        "spark.master": spark.url,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": 1,
        "spark.executor.extraJavaOptions": QUICK_START["JAVA_TOOL_OPTIONS"],
    }

    def done() -> dict[Place, int]:
        return committed(broker.bootstrap, sink, source)

    with Feeder(broker.bootstrap, source, PARTITIONS) as feeder, WinnowOnSpark(config, tmp_path) as service:
        until(lambda: len(busy(spark)) == 2, "work on both executors")
        until(lambda: len(done()) == PARTITIONS, "a flow")
        victim = until(lambda: busy(spark), "a task")[0]  # between two rounds no executor has one
        victim.kill()
        alive_after([victim])
        before = done()
        until(lambda: all(offset > before[place] + 500 for place, offset in done().items()), "a flow everywhere")
        until(lambda: len(busy(spark)) == 2, "work on two executors again")
        feeder.stop()
        until(lambda: done() == ends(broker.bootstrap, source), "the end")
        code = service.stop()

    assert 0 == code
    assert {} == amiss(feeder.written, read(broker.bootstrap, sink))
    until(lambda: not spark.executors(), "the end of the executors")


def busy(spark: StandaloneSpark) -> list[psutil.Process]:
    """Return the executors with a Python worker that runs a task."""
    return [executor for executor in spark.executors() if any(True for _ in working(executor))]
