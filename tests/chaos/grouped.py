"""What happened in a run: the events of its history, grouped by kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.chaos.history import Event

Numbers = NDArray[np.int64]
SINK, DEAD = "sink", "dead"


class Run(NamedTuple):
    """Adjacent records of one stream, as a reader got them."""

    at: float
    partition: int
    offset: int
    stream: int
    first: int
    records: int
    transaction: str


class Mark(NamedTuple):
    """The last stable offset (`stable`) and the high watermark (`high`) of an output partition."""

    at: float
    stable: int
    high: int


class Fault(NamedTuple):
    """A fault: when it was injected, and when it was repaired."""

    name: str
    target: str
    at: float
    until: float


@dataclass
class History:
    """The events of a run, grouped by kind."""

    setup: Event = field(default_factory=dict)
    written: dict[str, dict[int, list[Numbers]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    bad: dict[int, list[Numbers]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[tuple[str, str], list[Run]] = field(default_factory=lambda: defaultdict(list))
    altered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    closed: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    marks: dict[tuple[str, int], list[Mark]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    faults: list[Fault] = field(default_factory=list)
    successors: dict[str, str] = field(default_factory=dict)
    """From each stopped worker to the one that took over; a worker is the prefix of its transactions' names."""
    final: list[tuple[str, int, int, int]] = field(default_factory=list)
    writes: list[tuple[float, int]] = field(default_factory=list)
    ends_at: float = 0.0

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """Group the events of a history."""
        history = cls()
        for event in events:
            history.ends_at = max(history.ends_at, event["at"])
            if (add := HANDLERS.get(event["kind"])) is not None:
                add(history, event)
        return history

    @property
    def readers(self) -> list[str]:
        """The names of all readers."""
        return sorted({reader for reader, _ in self.reads})

    def expected(self, outcome: str, stream: int) -> Numbers:
        """Return the sequence numbers of a stream that were written with this outcome."""
        return joined(self.written[outcome].get(stream, ()))

    @property
    def streams(self) -> list[int]:
        """All streams that were written to."""
        return sorted({stream for outcome in self.written.values() for stream in outcome})

    def seen(self, reader: str, role: str) -> dict[int, Numbers]:
        """Return the sequence numbers that a reader got from a topic, per stream, in the order of reading."""
        found: dict[int, list[Numbers]] = defaultdict(list)
        for run in self.reads.get((reader, role), ()):
            found[run.stream].append(np.arange(run.first, run.first + run.records))
        return {stream: joined(numbers) for stream, numbers in found.items()}


def _add_write(history: History, event: Event) -> None:
    numbers = np.arange(event["first"], event["first"] + event["count"])
    history.written[event["outcome"]][event["stream"]].append(numbers)
    history.bad[event["stream"]].append(np.array(event["bad"], np.int64))
    if event["outcome"] != "aborted":
        history.writes.append((event["at"], event["count"]))


def _add_read(history: History, event: Event) -> None:
    runs = [Run(event["at"], event["partition"], *row) for row in event["runs"]]
    history.reads[event["reader"], event["role"]] += runs
    history.altered[event["reader"]] += event.get("altered", ())


def _add_marks(history: History, event: Event) -> None:
    for role, partition, stable, high in event["rows"]:
        history.marks[role, partition].append(Mark(event["at"], stable, high))


def _add_committed(history: History, event: Event) -> None:
    for partition, offset in event["offsets"].items():
        history.committed[partition].append((event["at"], offset))


def _add_healed(history: History, event: Event) -> None:
    for number in reversed(range(len(history.faults))):
        fault = history.faults[number]
        if (fault.name, fault.target) == (event["name"], event["target"]):
            history.faults[number] = fault._replace(until=event["at"])
            return


HANDLERS: Mapping[str, Callable[[History, Event], None]] = {
    "setup": lambda history, event: history.setup.update(event),
    "write": _add_write,
    "read": _add_read,
    "closed": lambda history, event: history.closed[event["reader"]].update({event["transaction"]: event["count"]}),
    "marks": _add_marks,
    "committed": _add_committed,
    "fault": lambda history, event: history.faults.append(
        Fault(event["name"], event["target"], event["at"], event["at"])
    ),
    "healed": _add_healed,
    "taken over": lambda history, event: history.successors.update({event["zombie"]: event["successor"]}),
    "finished": lambda history, event: history.final.extend(tuple(row) for row in event["rows"]),
}


def joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
