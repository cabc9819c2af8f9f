"""The snapshot: everything that the log, metrics, health checks and status page show, as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from app import __version__
from app.cures import PLACEHOLDERS, CommandLine
from app.errors import PartitionError, WinnowError
from app.model import FirstWaiting, Owner, Partition, Pause, Watermarks
from app.offsets.metadata import NOTHING, Counts
from app.offsets.mirrors import MirrorStatus
from app.offsets.times import TaskTimes
from app.status.window import Moment, Point

VERSION = 1


class Build(NamedTuple):
    """The versions that run, and the backend of the tasks (`winnow check` gives the reason for it)."""

    version: str = __version__
    python: str = ""
    pyspark: str = ""
    librdkafka: str = ""
    engine: str = ""


class About(NamedTuple):
    """
    What runs, and its work.

    Args:
        sources: the topics' names, or the pattern that finds them.
        command_line: how commands name this service.
        breaker_ratio: the share of dead letters that blocks a partition; None if none does.
        filter_limits: by filter, the share of the records above which its drops are a warning; None for any.
    """

    build: Build = Build()
    generation: int = 0
    guarantee: str = ""
    sources: tuple[str, ...] = ()
    sink: str = ""
    dead_letters: str = ""
    command_line: CommandLine = PLACEHOLDERS
    breaker_ratio: float | None = None
    filter_limits: Mapping[str, float | None] = {}


NOTHING_KNOWN = About()


class Phase(StrEnum):
    """The phase of the whole service."""

    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"  # asked to stop, but working until another service takes over
    STOPPING = "stopping"
    STOPPED = "stopped"


class Step(StrEnum):
    """What a start waits for, in the order of the steps."""

    RIGHTS = "Kafka's answers about rights and topics"
    SETTINGS = "Kafka's answers about the settings of topics and brokers"
    OFFSETS = "the group's offsets, and whether another service commits"
    FENCING = "transactions of an earlier run to end"
    SPARK = "Spark to start"
    WORKERS = "Spark's workers to be ready to take partitions over"
    ROUND = "the first tasks to start"


class PartitionState(StrEnum):
    """The state of one partition."""

    PLANNED = "planned"  # no task is working on it
    RUNNING = "running"
    FAILED = "failed"  # its task gave up; the next round retries
    BLOCKED = "blocked"  # it needs an operator
    PAUSED = "paused"  # an operator has paused the service


@dataclass(frozen=True, slots=True)
class Problem:
    """
    A current problem.

    Args:
        cure: what an operator can do; empty if it resolves itself.
        since: when it began, in seconds since the epoch.
        warns: whether nothing fails, but an operator should look.
        partition: the affected partition; None if it affects the service.
    """

    cause: str
    cure: str
    since: float
    partition: Partition | None = None
    offset: int | None = None
    warns: bool = False

    @classmethod
    def of(cls, error: WinnowError, since: float) -> Problem:
        if isinstance(error, PartitionError):
            return cls(error.cause, error.cure, since, error.partition, error.offset)
        return cls(error.cause, error.cure, since)

    def continuing(self, before: Problem | None) -> Problem:
        """Return the earlier of two equal problems, because `since` must not move."""
        return before if before is not None and str(before) == str(self) else self

    def __str__(self) -> str:
        where = "" if self.partition is None else self.partition.at(self.offset)
        return ": ".join(part for part in (where, self.cause, self.cure) if part)


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """
    The status of one source partition. Times are in seconds since the epoch, counts since the service started.

    Args:
        since: when that state began.
        next_offset: the next offset to read: the committed one, or else the planned start.
        last_stable: the last stable offset, where committed records end.
        unstable_since: since when a producer's open transaction has held the last stable offset back; None if no
            records wait behind it.
        log_start: the first offset still in the partition.
        lag: offsets from the next one to the last stable one.
        waiting: the first waiting record; None if there is none or it is unknown.
        lost: how many offsets retention deleted unread.
        rate_limit: the current limit in records per second; None if there is none.
        moved: when the committed offset last moved; None if it has not.
        points: its positions in the last minutes, newest last.
        skipped: the offsets that `out.of.range` last skipped, as a half-open range.
        rewound: the offsets that `out.of.range` last read again, as a half-open range.
        recovered: the last error that its task recovered from; empty if there was none.
        reopened: how many producers were replaced.
        fenced: how often another owner took it over.
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
    waiting: FirstWaiting | None = None
    lost: int = 0
    rate_limit: int | None = None
    moved: float | None = None
    points: tuple[Point, ...] = ()
    counts: Counts = NOTHING
    problem: Problem | None = None
    skipped: tuple[int, int] | None = None
    rewound: tuple[int, int] | None = None
    recovered: str = ""
    reopened: int = 0
    fenced: int = 0

    @property
    def lag_to_high_watermark(self) -> int:
        """The lag to the high watermark, including open transactions."""
        return self.lag + self.high_watermark - self.last_stable

    def moved_at(self, committed: int | None, now: float) -> float | None:
        """Return when the committed offset last moved; neither the first look nor its loss is a movement."""
        return self.moved if committed is None or self.committed in (None, committed) else now

    def still_unstable(self, found: Watermarks, now: float) -> float | None:
        """Return since when records have been waiting behind an unchanged last stable offset; None if none are."""
        if found.high_watermark <= found.last_stable:
            return None
        stays = self.unstable_since is not None and self.last_stable == found.last_stable
        return self.unstable_since if stays else now

    @property
    def open_transaction_seconds(self) -> float | None:
        """How long, at the last look, an open transaction had held the last stable offset back; None if unknown."""
        if self.unstable_since is None:
            return 0.0
        return max(0.0, self.points[-1].at - self.unstable_since) if self.points else None

    @property
    def lag_seconds(self) -> float | None:
        """The age of the first waiting record at the last look; 0 if none was waiting, None if unknown."""
        if self.lag and (self.waiting is None or not self.points):
            return None
        since = self.waiting.since if self.lag and self.waiting else None
        return 0.0 if since is None else max(0.0, self.points[-1].at - since)

    def retention_margin(self, now: float) -> float | None:
        """Return the seconds until the first waiting record may be deleted; None if no record is in danger."""
        since, retention = self.waiting or (None, None)
        return since + retention - now if self.lag and since is not None and retention is not None else None


@dataclass(frozen=True, slots=True)
class Advance:
    """What was done between two refreshes from Kafka, and the seconds between them."""

    counts: Counts
    seconds: float


class Ending(StrEnum):
    """Why a round ended."""

    DONE = "done"  # its deadline or the agreed end was reached
    REBALANCE = "rebalance"
    STARVED = "starved"  # a task had no slot
    OVERDUE = "overdue"  # a task did not end in time
    STOPPED = "stopped"
    LOST = "lost"  # Spark gave up on it


@dataclass(frozen=True, slots=True)
class RoundStatus:
    """
    The status of one round.

    Args:
        number: 1 for the first round of this service.
        began: in seconds since the epoch.
        slots: how many tasks could run at once.
        partitions: the number of their partitions.
        lost_tasks: how many task attempts have failed.
        ending: why it ends or ended; None while it runs.
        reason: the details of `ending`.
        seconds: its duration; None while it runs.
        counts: the tasks' counts; None while it runs and if they did not report.
    """

    number: int
    began: float
    slots: int
    tasks: int
    partitions: int
    lag_before: int
    lost_tasks: int = 0
    ending: Ending | None = None
    reason: str = ""
    killed: bool = False
    seconds: float | None = None
    counts: Counts | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    The state of the service at one moment. Times are in seconds since the epoch.

    Args:
        alive: the last heartbeat; newer than `at` if nothing has changed since.
        looked: when the offsets were last read from Kafka; None before the first time.
        step_since: when the start began to wait for `step`.
        cause: why it is stopping; empty while it runs.
        round: the last round; None before the first.
        ended: the last finished rounds, newest last.
        endings: the number of finished rounds by ending.
        outage: the current outage of Kafka, including refusals; None while Kafka responds.
        rival: another active run of this generation; None if there is none.
        fenced: the partitions lost to other owners before the last discovery, with the new owner; None if that has not
            committed yet.
        taken: the partitions that a later generation has taken over.
        excesses: the filters that drop more than their limit.
        totals: the counts of all records since the service started.
        tasks: the times of each task since the service started, by its number within a round.
        hour: the moments of the last hour, newest last.
        day: fewer moments, of the last day.
    """

    at: float
    group: str
    started: float
    about: About = NOTHING_KNOWN
    alive: float = 0.0
    looked: float | None = None
    phase: Phase = Phase.STARTING
    step: Step = Step.RIGHTS
    step_since: float = 0.0
    cause: str = ""
    partitions: Mapping[Partition, PartitionStatus] = field(default_factory=dict)
    round: RoundStatus | None = None
    ended: tuple[RoundStatus, ...] = ()
    endings: Mapping[Ending, int] = field(default_factory=dict)
    progress: Advance | None = None
    outage: Problem | None = None
    rival: Problem | None = None
    fenced: Mapping[Partition, Owner | None] = field(default_factory=dict)
    taken: Mapping[Partition, Owner] = field(default_factory=dict)
    mirrors: tuple[MirrorStatus, ...] = ()
    excesses: Mapping[str, Problem] = field(default_factory=dict)
    totals: Counts = NOTHING
    warnings: tuple[str, ...] = ()
    paused: Pause | None = None
    tasks: Mapping[int, TaskTimes] = field(default_factory=dict)
    hour: tuple[Moment, ...] = ()
    day: tuple[Moment, ...] = ()

    @property
    def problems(self) -> list[Problem]:
        """All current problems, the service's own first."""
        mend = "repair its store; the flow continues"
        of_mirrors = (
            Problem(f"mirror {each.name} fails: {each.error}", mend, each.since, warns=True)
            for each in self.mirrors
            if each.error
        )
        of_partitions = (status.problem for status in self.partitions.values())
        found = (self.outage, self.rival, *of_mirrors, *of_partitions, *self.excesses.values())
        return [each for each in found if each is not None]

    @property
    def stands_by(self) -> bool:
        """Whether it leaves the work to another service, and has not worked yet."""
        return self.phase is Phase.STARTING and (bool(self.taken) or self.rival is not None)

    @property
    def rate_limit(self) -> int | None:
        """The most records per second of all partitions together; None if one has no limit."""
        limits = [status.rate_limit for status in self.partitions.values()]
        return sum(each or 0 for each in limits) if limits and None not in limits else None

    @property
    def lag(self) -> int:
        return sum(status.lag for status in self.partitions.values())
