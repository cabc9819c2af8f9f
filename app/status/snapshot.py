"""The snapshot: everything that a log, a metric, a health check or a page may show, as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from app import __version__
from app.errors import PartitionError, WinnowError
from app.model import Owner, Partition, Pause, Waiting, Watermarks
from app.offsets.metadata import NOTHING, Counts
from app.offsets.mirrors import MirrorStatus
from app.offsets.times import TaskTimes
from app.status.window import Look, Moment

VERSION = 1


class Build(NamedTuple):
    """What runs: versions, and the backend that tasks use (`winnow check` says why)."""

    version: str = __version__
    python: str = ""
    pyspark: str = ""
    librdkafka: str = ""
    engine: str = ""


class About(NamedTuple):
    """
    What runs, and what it is to do.

    Args:
        build: the versions.
        generation: of services of one group, that of the largest one works.
        guarantee: the delivery guarantee.
        sources: the source topics, or the pattern that finds them.
        sink: the topic for cleansed lines.
        dead_letters: the topic for rejected records.
    """

    build: Build = Build()
    generation: int = 0
    guarantee: str = ""
    sources: tuple[str, ...] = ()
    sink: str = ""
    dead_letters: str = ""


NOTHING_KNOWN = About()


class Phase(StrEnum):
    """What the service as a whole does."""

    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"  # it is asked to stop, and works on until another service takes over
    STOPPING = "stopping"
    STOPPED = "stopped"


class PartitionState(StrEnum):
    """What happens to one partition."""

    PLANNED = "planned"  # it is known, and no task works on it
    RUNNING = "running"
    FAILED = "failed"  # its task gave it up; the next round tries again
    BLOCKED = "blocked"  # it waits for a person
    PAUSED = "paused"  # a person has paused the service


@dataclass(frozen=True, slots=True)
class Problem:
    """
    Something that is wrong.

    Args:
        cause: what happened.
        cure: what a person can do about it; empty where it mends itself.
        since: when it began, in seconds since the epoch.
        partition: where, if that is one partition.
        offset: where in it.
    """

    cause: str
    cure: str
    since: float
    partition: Partition | None = None
    offset: int | None = None

    @classmethod
    def of(cls, error: WinnowError, since: float) -> Problem:
        """Return an error as a problem that began at a time."""
        if isinstance(error, PartitionError):
            return cls(error.cause, error.cure, since, error.partition, error.offset)
        return cls(error.cause, error.cure, since)

    def __str__(self) -> str:
        where = "" if self.partition is None else f"{self.partition}"
        where += "" if self.offset is None else f"@{self.offset}"
        return ": ".join(part for part in (where, self.cause, self.cure) if part)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """
    One source partition.

    Args:
        partition: which partition.
        state: what happens to it.
        since: when that state began, in seconds since the epoch.
        committed: the next offset to read; None where no offset is committed.
        next_offset: the same, or where the plan begins if none is committed.
        last_stable: the last stable offset: committed records end there.
        high_watermark: where all records end.
        unstable_since: since when an open transaction of a producer keeps the last stable offset where it is; None
            where records do not wait behind it.
        log_start: the first offset that the partition still holds.
        lag: how many offsets wait from the next one to the last stable one.
        waiting: the first record that waits; None where none does, or that is not known.
        lost: how many offsets retention deleted before they were read, as far as the service has seen since it started.
        rate_limit: how many of its records are read in a second, as the configuration says; None where it does not.
        moved: when the committed offset was seen to move last, in seconds since the epoch; None if it was not.
        looks: where it stood in the last minutes, the newest last.
        counts: what became of its records since the service started.
        problem: what is wrong with it.
        skipped: the offsets that `out.of.range` skipped last, first and after the last.
        rewound: the offsets that `out.of.range` read again last, first and after the last.
        recovered: the last error that its task got over by itself; empty if there was none.
        reopened: how often a producer had to be replaced since the service started.
        fenced: how often somebody else took it over since the service started.
    """

    partition: Partition
    state: PartitionState
    since: float
    committed: int | None = None
    next_offset: int = 0
    last_stable: int = 0
    high_watermark: int = 0
    unstable_since: float | None = None
    log_start: int = 0
    lag: int = 0
    waiting: Waiting | None = None
    lost: int = 0
    rate_limit: int | None = None
    moved: float | None = None
    looks: tuple[Look, ...] = ()
    counts: Counts = NOTHING
    problem: Problem | None = None
    skipped: tuple[int, int] | None = None
    rewound: tuple[int, int] | None = None
    recovered: str = ""
    reopened: int = 0
    fenced: int = 0

    @property
    def lag_to_high_watermark(self) -> int:
        """How many offsets wait up to the high watermark, also those of open transactions."""
        return self.lag + self.high_watermark - self.last_stable

    def still_unstable(self, found: Watermarks, now: float) -> float | None:
        """Return since when records wait behind the last stable offset, which is not found to have moved."""
        if found.high_watermark <= found.last_stable:
            return None
        stays = self.unstable_since is not None and self.last_stable == found.last_stable
        return self.unstable_since if stays else now

    @property
    def lag_seconds(self) -> float | None:
        """How old the first record was that waited at the last look; 0 where none did, None where that is not known."""
        if self.lag and (self.waiting is None or not self.looks):
            return None
        since = self.waiting.since if self.lag and self.waiting else None
        return 0.0 if since is None else max(0.0, self.looks[-1].at - since)

    def retention_margin(self, now: float) -> float | None:
        """Return in how many seconds the first record that waits may be deleted; None where none is in danger."""
        since, retention = self.waiting or (None, None)
        return since + retention - now if self.lag and since is not None and retention is not None else None


@dataclass(frozen=True, slots=True)
class Progress:
    """What was done between two refreshes from Kafka, and how many seconds lie between them."""

    counts: Counts
    seconds: float


class End(StrEnum):
    """Why a round ended."""

    DONE = "done"  # its deadline or the agreed end was reached
    REBALANCE = "rebalance"
    STARVED = "starved"  # a task found no slot
    OVERDUE = "overdue"  # a task did not end
    STOPPED = "stopped"
    LOST = "lost"  # Spark gave it up


@dataclass(frozen=True, slots=True)
class RoundStatus:
    """
    One round.

    Args:
        number: 1 for the first round of this service.
        began: when it began, in seconds since the epoch.
        slots: how many tasks could run at once.
        tasks: how many tasks it has.
        partitions: how many partitions they work on.
        lag_before: the offsets that waited when it began.
        lost_tasks: how many attempts at its tasks were lost so far.
        ending: why it ends or ended; None while it runs.
        reason: the details of `ending`.
        killed: whether its tasks had to be killed.
        seconds: how long it took; None while it runs.
        counts: what its tasks report; None while it runs, and where they were killed or lost.
    """

    number: int
    began: float
    slots: int
    tasks: int
    partitions: int
    lag_before: int
    lost_tasks: int = 0
    ending: End | None = None
    reason: str = ""
    killed: bool = False
    seconds: float | None = None
    counts: Counts | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    The service at one moment.

    Args:
        at: the moment, in seconds since the epoch.
        alive: when the service last gave a sign of life; it is newer than `at` where nothing has changed since.
        looked: when the offsets were read from Kafka last; None before the first time.
        group: the consumer group.
        started: when the service started, in seconds since the epoch.
        about: what runs, and what it is to do.
        phase: what it does.
        cause: why it stops; empty while it runs.
        partitions: the status of every source partition.
        round: the last round; None before the first.
        ended: the last rounds that have ended, the newest last.
        endings: how many rounds have ended, and why.
        progress: what the tasks did between the last two refreshes; None before the first.
        outage: that Kafka does not answer the driver, or refuses it; None while it answers.
        rival: that another run of this generation still works for the group; None while none does.
        fenced: the partitions that somebody else took over before the last discovery, and who owns them; None where
            nobody has committed there since.
        taken: the partitions that a service of a later generation has taken over.
        mirrors: the mirrors of the offsets, as the driver writes them.
        totals: what became of all records since the service started.
        warnings: what the preflight has found, and what to do about it.
        paused: that a person has paused it; None while it works.
        tasks: what the tasks have spent their time on since then, by their numbers in the rounds.
        hour: the service in the last hour, the newest moment last.
    """

    at: float
    group: str
    started: float
    about: About = NOTHING_KNOWN
    alive: float = 0.0
    looked: float | None = None
    phase: Phase = Phase.STARTING
    cause: str = ""
    partitions: Mapping[Partition, PartitionStatus] = field(default_factory=dict)
    round: RoundStatus | None = None
    ended: tuple[RoundStatus, ...] = ()
    endings: Mapping[End, int] = field(default_factory=dict)
    progress: Progress | None = None
    outage: Problem | None = None
    rival: Problem | None = None
    fenced: Mapping[Partition, Owner | None] = field(default_factory=dict)
    taken: Mapping[Partition, Owner] = field(default_factory=dict)
    mirrors: tuple[MirrorStatus, ...] = ()
    totals: Counts = NOTHING
    warnings: tuple[str, ...] = ()
    paused: Pause | None = None
    tasks: Mapping[int, TaskTimes] = field(default_factory=dict)
    hour: tuple[Moment, ...] = ()

    @property
    def problems(self) -> list[Problem]:
        """Everything that is wrong now, the service's own problems first."""
        of_mirrors = (
            Problem(f"the mirror {mirror.name} fails: {mirror.error}", "the flow goes on; mend its store", mirror.since)
            for mirror in self.mirrors
            if mirror.error
        )
        of_partitions = (status.problem for status in self.partitions.values())
        return [each for each in (self.outage, self.rival, *of_mirrors, *of_partitions) if each is not None]

    @property
    def lag(self) -> int:
        """How many offsets wait in all partitions."""
        return sum(status.lag for status in self.partitions.values())
