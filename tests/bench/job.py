"""One run's topics and folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.embedded.broker import Cluster


@dataclass(frozen=True, slots=True)
class Job:
    """One run's topics, names and folder, all fresh but the source."""

    bootstrap: str
    source: str
    sink: str
    dead_letters: str
    partitions: int
    group: str
    folder: Path

    @property
    def topics(self) -> list[str]:
        """What every program is told first."""
        return [self.bootstrap, self.source, self.sink, self.dead_letters]


@contextmanager
def prepared(name: str, broker: Cluster, source: str, partitions: int, folder: Path) -> Iterator[Job]:
    """Create fresh output topics and a folder for one run, and drop its output behind it."""
    os.sync()  # what the run before has written must not be written to disk at this one's cost
    sink = broker.create_topic(f"{name}.clean", partitions)
    dead_letters = broker.create_topic(f"{name}.dlq")
    (folder / name).mkdir()
    try:
        yield Job(broker.bootstrap, source, sink, dead_letters, partitions, name, folder / name)
    finally:
        drop(broker, [sink, dead_letters])


def drop(broker: Cluster, topics: Sequence[str]) -> None:
    """Delete topics."""
    admin = broker.admin()  # must outlive its answers
    for deleted in admin.delete_topics(list(topics)).values():
        deleted.result(30)


def keep_to(cores: int) -> None:
    """Keep to so many cores; the broker and the jobs inherit it."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
