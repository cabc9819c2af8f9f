"""The topics and the folder of one run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.embedded.broker import Cluster


@dataclass(frozen=True, slots=True)
class Job:
    """The topics, names and folder of one run. Everything but the source topic is new."""

    bootstrap: str
    source: str
    sink: str
    dead_letters: str
    partitions: int
    group: str
    folder: Path

    @property
    def topics(self) -> list[str]:
        """The first arguments of every program."""
        return [self.bootstrap, self.source, self.sink, self.dead_letters]


@contextmanager
def prepared(name: str, broker: Cluster, source: str, partitions: int, folder: Path) -> Iterator[Job]:
    """Create the output topics and the folder of one run. Delete the topics afterwards."""
    os.sync()  # so that this run does not pay for the disk writes of the previous one
    sink = broker.create_topic(f"{name}.clean", partitions)
    dead_letters = broker.create_topic(f"{name}.dlq")
    (folder / name).mkdir()
    try:
        yield Job(broker.bootstrap, source, sink, dead_letters, partitions, name, folder / name)
    finally:
        drop(broker, [sink, dead_letters])


def drop(broker: Cluster, topics: Sequence[str]) -> None:
    """Delete topics."""
    admin = broker.admin()  # must live until the last response
    for deleted in admin.delete_topics(list(topics)).values():
        deleted.result(30)


def keep_to(cores: int) -> None:
    """Restrict this process to that many cores. The broker and the jobs inherit the limit."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
