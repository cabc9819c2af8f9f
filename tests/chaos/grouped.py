"""What happened in a run: the events of its history, grouped by kind."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.chaos.history import Event

Numbers = NDArray[np.int64]
SINK, DEAD = "sink", "dead"
NOBODY = "nobody"
"""The target of a fault that has met nobody."""
LAST_READER = "final"
"""The reader that reads everything once more, when the service has stopped."""


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
    """
    A fault: when it was injected, and when it was repaired.

    Args:
        name: its kind.
        target: what it hit.
        at: when the harm was done.
        until: when it was repaired.
        told: the regular expression that the log must match meanwhile; empty if nothing needs to be told.
        began: when the nemesis began with it.
    """

    name: str
    target: str
    at: float
    until: float
    told: str = ""
    began: float = 0.0


class Said(NamedTuple):
    """A line of the service's log."""

    at: float
    text: str


class Harmed(NamedTuple):
    """The partitions that a fault hit from one moment to another; the others had to go on."""

    since: float
    until: float
    partitions: frozenset[int]


class Seen(NamedTuple):
    """An anomaly that the nemesis itself has seen."""

    at: float
    anomaly: str
    what: str


class Sample(NamedTuple):
    """The figures of one process at a moment, by measure (`tests.chaos.resources`)."""

    at: float
    kind: str
    pid: int
    figures: Mapping[str, float]


class Audit(NamedTuple):
    """
    What `winnow audit` said of the whole run.

    Args:
        code: its exit code.
        counts: its findings of each kind, and how many records were `not_judged`; empty if it gave no verdict.
        words: what it wrote to stderr.
    """

    code: int
    counts: Mapping[str, int]
    words: str


@dataclass
class History:
    """The events of a run, grouped by kind."""

    setup: Event = field(default_factory=dict)
    written: dict[str, dict[int, list[Numbers]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    bad: dict[int, list[Numbers]] = field(default_factory=lambda: defaultdict(list))
    either: dict[int, list[Numbers]] = field(default_factory=lambda: defaultdict(list))
    """The lines that may be in the sink or among the dead letters."""
    kept: dict[int, list[Numbers]] | None = None
    """The lines that the source holds at the end, where Kafka may have cut some."""
    places: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """At least once: partition and offset in the source of each line."""
    planted: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Stream and number of the lines that the harness itself added to the sink."""
    audit: Audit | None = None
    drained: bool = True
    """Whether the service had done everything at the end."""
    reads: dict[tuple[str, str], list[Run]] = field(default_factory=lambda: defaultdict(list))
    altered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    hashes: dict[tuple[str, str, int], dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """What a reader got at some offsets of a topic's partition, so far as that can differ for one line."""
    closed: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    marks: dict[tuple[str, int], list[Mark]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    resets: list[tuple[float, str]] = field(default_factory=list)
    """When an operator has set the offset of which partition."""
    faults: list[Fault] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    """How many faults of each kind have met nobody."""
    said: list[Said] = field(default_factory=list)
    harmed: list[Harmed] = field(default_factory=list)
    seen_by_nemesis: list[Seen] = field(default_factory=list)
    successors: dict[str, str] = field(default_factory=dict)
    """From each stopped worker to the one that took over; a worker is the prefix of its transactions' names."""
    final: list[tuple[str, int, int, int]] = field(default_factory=list)
    writes: list[tuple[float, int]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
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

    @property
    def may_double(self) -> bool:
        """Whether the service delivered at least once, and was meant to."""
        return bool(self.setup.get("may_double"))

    def saved_at(self, stream: int, number: int) -> float:
        """Return when the offset behind a line was first seen saved: infinity if never, 0 if its place is not known."""
        if (place := self.places.get((stream, number))) is None:
            return 0.0
        partition, offset = place
        return next((at for at, saved in self.committed.get(str(partition), ()) if saved > offset), math.inf)

    def expected(self, outcome: str, stream: int) -> Numbers:
        """Return the sequence numbers of a stream that were written with this outcome."""
        return joined(self.written[outcome].get(stream, ()))

    def cut(self, stream: int) -> Numbers:
        """Return the acknowledged lines that Kafka itself has lost: the source does not hold them any more."""
        if self.kept is None:
            return np.zeros(0, np.int64)
        return np.setdiff1d(self.expected("ok", stream), joined(self.kept.get(stream, ())))

    @property
    def streams(self) -> list[int]:
        """All streams that were written to."""
        return sorted({stream for outcome in self.written.values() for stream in outcome})

    @property
    def read_places(self) -> list[tuple[str, int]]:
        """The partitions of the output that anybody has read from, by role."""
        return sorted({(role, run.partition) for (_, role), runs in self.reads.items() for run in runs})

    def lines_at(self, reader: str, role: str, partition: int) -> Numbers:
        """Return what a reader got from a partition, in three rows: offsets, streams, and sequence numbers."""
        runs = [run for run in self.reads.get((reader, role), ()) if run.partition == partition]
        columns = [(run.offset, run.stream, run.first, run.records) for run in runs]
        offset, stream, first, records = np.array(columns, np.int64).reshape(-1, 4).T
        within = np.arange(records.sum()) - np.repeat(np.cumsum(records) - records, records)
        return np.stack(
            [np.repeat(offset, records) + within, np.repeat(stream, records), np.repeat(first, records) + within]
        )

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
    history.either[event["stream"]].append(np.array(event.get("either", ()), np.int64))
    if event["outcome"] != "aborted":
        history.writes.append((event["at"], event["count"]))


def _add_read(history: History, event: Event) -> None:
    runs = [Run(event["at"], event["partition"], *row) for row in event["runs"]]
    history.reads[event["reader"], event["role"]] += runs
    history.altered[event["reader"]] += event.get("altered", ())
    hashes = {int(offset): value for offset, value in event.get("hashes", {}).items()}
    history.hashes[event["reader"], event["role"], event["partition"]] |= hashes


def _add_marks(history: History, event: Event) -> None:
    for role, partition, stable, high in event["rows"]:
        history.marks[role, partition].append(Mark(event["at"], stable, high))


def _add_committed(history: History, event: Event) -> None:
    for partition, offset in event["offsets"].items():
        history.committed[partition].append((event["at"], offset))


def _add_sample(history: History, event: Event) -> None:
    history.samples.append(Sample(event["at"], event["process"], event["pid"], event["figures"]))


def _add_kept(history: History, event: Event) -> None:
    history.kept = {} if history.kept is None else history.kept
    for stream, first, count in event["runs"]:
        history.kept.setdefault(stream, []).append(np.arange(first, first + count))
        if history.may_double:
            place = event["partition"], event["offset"]
            history.places |= {(stream, first + n): (place[0], place[1] + n) for n in range(count)}


def _add_planted(history: History, event: Event) -> None:
    history.planted[event["stream"], event["number"]] += 1


def _add_not_drained(history: History, _event: Event) -> None:
    history.drained = False


def _add_audit(history: History, event: Event) -> None:
    history.audit = Audit(event["code"], event["counts"], event["words"])


def _add_said(history: History, event: Event) -> None:
    text = " ".join(str(value) for key, value in event.items() if key.startswith("service_"))
    history.said.append(Said(event["at"], text))


def _add_fault(history: History, event: Event) -> None:
    at = event["at"]
    history.missed[event["name"]] += event["target"] == NOBODY
    history.faults.append(Fault(event["name"], event["target"], at, at, event.get("told", ""), event["began"]))


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
    "reset": lambda history, event: history.resets.append((event["at"], event["partition"])),
    "kept": _add_kept,
    "planted": _add_planted,
    "audited": _add_audit,
    "sample": _add_sample,
    "not drained": _add_not_drained,
    "said": _add_said,
    "harmed": lambda history, event: history.harmed.append(
        Harmed(event["since"], event["at"], frozenset(event["partitions"]))
    ),
    "seen": lambda history, event: history.seen_by_nemesis.append(Seen(event["at"], event["anomaly"], event["what"])),
    "fault": _add_fault,
    "missed": lambda history, event: history.missed.update([event["name"]]),
    "healed": _add_healed,
    "taken over": lambda history, event: history.successors.update({event["zombie"]: event["successor"]}),
    "finished": lambda history, event: history.final.extend(tuple(row) for row in event["rows"]),
}


def joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
