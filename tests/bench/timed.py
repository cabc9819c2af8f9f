"""
Winnow's worker daemon with timed clients: a `spark.python.daemon.module` for the benchmark.

Each worker writes a file of lines: `opened SECONDS` for each task, from its first client to its first poll, and `commit
SECONDS` for each commit of a partition.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import daemon

from app.kafka.clients import TaskClients
from app.model import Partition, TaskConfig
from app.offsets.contract import OffsetStore
from app.records import Chunk
from app.spark import job

FOLDER = "WINNOW_BENCH_TIMES"


class Times(NamedTuple):
    """The times recorded by the workers, in seconds."""

    opened: list[float]
    commits: list[float]


def spark_settings(folder: Path) -> dict[str, str]:
    """Return the Spark settings that make workers write their times into a folder."""
    return {"spark.python.daemon.module": __name__, f"spark.executorEnv.{FOLDER}": str(folder)}


def read(folder: Path) -> Times:
    """Return the times that workers wrote."""
    lines = [line.split() for file in folder.glob("times-*") for line in file.read_text().splitlines()]
    return Times(*([float(seconds) for name, seconds in lines if name == each] for each in ("opened", "commit")))


class TimedClients:
    """The clients of a task, as the service creates them, with timed calls."""

    def __init__(self, task_config: TaskConfig) -> None:
        self._began = time.monotonic()
        self._clients = TaskClients(task_config)
        self._times: list[str] = []

    def consumer(self) -> _TimedConsumer:
        """Return the consumer of the task."""
        return _TimedConsumer(self._clients.consumer(), self._began, self._times)

    def offsets(self) -> OffsetStore:
        """Return the offset store of the task."""
        return self._clients.offsets()

    def writer(self, partition: Partition, offsets: OffsetStore) -> _TimedWriter:
        """Return the writer of one source partition."""
        return _TimedWriter(self._clients.writer(partition, offsets), self._times)


class _TimedConsumer:
    """A consumer that records its first poll. When it closes, it writes all times of its task to a file."""

    def __init__(self, timed: Any, began: float, times: list[str]) -> None:
        self.timed = timed
        self._began: float | None = began
        self._times = times

    def poll(self, seconds: float, most: int | None = None) -> Chunk | None:
        if self._began is not None:
            self._times.append(f"opened {time.monotonic() - self._began}")
            self._began = None
        chunk: Chunk | None = self.timed.poll(seconds, most)
        return chunk

    def close(self) -> None:
        self.timed.close()
        with Path(os.environ[FOLDER], f"times-{os.getpid()}").open("a") as file:
            file.writelines(f"{line}\n" for line in self._times)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.timed, name)


class _TimedWriter:
    """A writer that records the duration of each commit."""

    def __init__(self, timed: Any, times: list[str]) -> None:
        self._timed = timed
        self._times = times

    def commit(self, offset: int, metadata: str) -> None:
        began = time.monotonic()
        self._timed.commit(offset, metadata)
        self._times.append(f"commit {time.monotonic() - began}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timed, name)


if __name__ == "__main__":
    job.warm_up()
    setattr(job, "TaskClients", TimedClients)  # noqa: B010  # mypy rejects an assignment
    daemon.manager()
