"""The offset listener in a real Structured Streaming query of Spark 4.0.0, with Spark's own Kafka connector."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Self

from app.embedded.broker import Broker, Cluster
from app.spark.listener import SAY_AGAIN_SECONDS
from tests import independent
from tests.bench.environment import connector_jars, connector_python
from tests.conftest import QUICK_JAVA, Topics
from tests.independent import Written, committed, ends, grow, produce
from tests.integration.service import QUICK_START
from tests.support.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("query.py")


class Query:
    """
    A run of query.py. A context manager that ends it.

    Args:
        options: its OPTIONS.
        log: the file for its log.
    """

    def __init__(self, options: dict[str, Any], log: Path) -> None:
        """Prepare the command without starting."""
        self._command = [str(connector_python()), str(PROGRAM), json.dumps(options), *map(str, connector_jars())]
        self.progress: list[dict[str, Any]] = []
        self.saved: bool | None = None
        self._log = log

    def __enter__(self) -> Self:
        """Start it."""
        environment = {**os.environ, **QUICK_START, "PYTHONPATH": str(ROOT)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        return self

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            said = json.loads(line)
            if "saved" in said:
                self.saved = said["saved"]
            else:
                self.progress.append(said)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End it. If a test failed, print its log."""
        with self._process:
            self._close_input()
            self._listener.join(PATIENCE)  # it ends with the program's output
            self._process.kill()
        if kind is not None:
            print("the log of the query:", self.log[-5_000:])

    def _close_input(self) -> None:
        assert self._process.stdin is not None  # always a pipe
        self._process.stdin.close()

    @property
    def log(self) -> str:
        """Its log so far."""
        return self._log.read_text()

    def batches(self) -> int:
        """Return the number of batches so far."""
        return len(self.progress)

    def await_batches(self, more: int) -> None:
        """Wait until the query has processed this many more batches."""
        wanted = self.batches() + more
        until(lambda: self.batches() >= wanted, f"{more} more batches")


def write(cluster: Cluster, topic: str, count: int, partition: int = 0) -> None:
    """Write records to a partition."""
    produce(cluster.bootstrap, topic, [Written(b"v", partition=partition)] * count)


def options(broker: Cluster, folder: Path, *sources: str, **more: object) -> dict[str, Any]:
    """Return the options of a query whose listener commits to a group of the query's name."""
    name = f"query-{folder.name}"
    kafka = {"bootstrap.servers": broker.bootstrap}
    usual = {"bootstrap": broker.bootstrap, "sources": sources, "checkpoint": str(folder / "checkpoint")}
    return {**usual, "patience": PATIENCE, "name": name, "group": name, "kafka": kafka, **more}


def test_lag_tools_see_the_query(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """The group of a query with two Kafka sources is at their ends, also for added partitions and after a restart."""
    a, b, c = topics("a", 2), topics("b"), topics("c")
    query = options(broker, tmp_path, f"{a},{b}", c)
    group = query["group"]

    def caught_up() -> bool:
        return committed(broker.bootstrap, group, a, b, c) == {
            place: end for topic in (a, b, c) for place, end in ends(broker.bootstrap, topic).items()
        }

    write(broker, a, 5)
    write(broker, c, 3)
    with Query(query, tmp_path / "log") as first:
        until(caught_up, "the offsets of the first batches")
        grow(broker.bootstrap, a, 3)
        write(broker, a, 7, partition=2)
        write(broker, b, 2)
        until(caught_up, "the offsets of the added partition")
    write(broker, c, 4)
    with Query(query, tmp_path / "log") as second:
        until(caught_up, "the offsets after the restart")

    assert first.saved
    assert second.saved
    assert 7 == committed(broker.bootstrap, group, a)[a, 2]


def test_an_offset_never_goes_back(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A query that starts over with an empty checkpoint leaves the group's offsets alone until it is past them."""
    topic = topics("a")
    query = options(broker, tmp_path, topic, most=1)
    write(broker, topic, 1_000)
    independent.commit(broker.bootstrap, query["group"], {(topic, 0): 900})

    with Query(query, tmp_path / "log") as run:
        run.await_batches(3)
        until(lambda: f"{topic}-0 stays at 900, because the query is only at" in run.log, "the warning")
        last = run.progress[-1]["sources"][0]["endOffset"][topic]["0"]

    assert last < 900 == committed(broker.bootstrap, query["group"], topic)[topic, 0]


def test_an_outage_of_kafka_does_no_harm_to_the_query(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """While offsets cannot be saved, the query continues and says so once a minute. Later the offsets catch up with it."""
    topic = topics("a")
    with Broker(java=QUICK_JAVA) as mirror:
        mirror.create_topic(topic)
        query = options(broker, tmp_path, topic, kafka={"bootstrap.servers": mirror.bootstrap})
        write(broker, topic, 5)
        with Query(query, tmp_path / "log") as run:
            until(lambda: committed(mirror.bootstrap, query["group"], topic) == {(topic, 0): 5})
            mirror.kill()
            began = time.monotonic()
            write(broker, topic, 5)
            until(lambda: "its offsets are not being saved" in run.log, "the warning")
            run.await_batches(5)
            mirror.start()
            until(lambda: committed(mirror.bootstrap, query["group"], topic) == {(topic, 0): 10})
            until(lambda: "are saved again" in run.log, "the good news")
            minutes = (time.monotonic() - began) // SAY_AGAIN_SECONDS

    assert run.saved
    assert run.log.count("its offsets are not being saved") <= 1 + minutes
