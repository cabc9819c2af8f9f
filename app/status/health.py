"""
What the service does now, whether that is well, and what is safe meanwhile.

The page, `/api/status`, the probes and `winnow_ready` say it with the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from app.cures import RESUME
from app.model import Guarantee
from app.status.condition import Condition, judge
from app.status.snapshot import Phase, Problem, Snapshot

# A look at Kafka takes half a minute if all its requests time out.
ALIVE_SECONDS = 55.0
# Spark may wait for its cluster before the loop begins.
START_SECONDS = 300.0
RESTART_PROCESS = "Restart the process. A liveness probe on /healthz does it by itself."
BEHIND_LATER = "a later generation is working for this group; this service stands by until it is gone"
BEHIND_EQUAL = "another service is working for this group; this one stands by until it is gone"


class Level(StrEnum):
    """How much an operator should care."""

    GOOD = "good"
    BUSY = "busy"
    WARNING = "warning"
    BAD = "bad"


LEVELS = {
    Condition.BLOCKED: Level.BAD,
    Condition.STALLED: Level.BAD,
    Condition.FALLING_BEHIND: Level.WARNING,
    Condition.PAUSED: Level.WARNING,
    Condition.UNKNOWN: Level.WARNING,
    Condition.WAITING: Level.BUSY,
    Condition.CATCHING_UP: Level.BUSY,
    Condition.OK: Level.GOOD,
}
"""The conditions of partitions, the worst first."""

SAFE: Mapping[str, str] = {
    Guarantee.EXACTLY_ONCE: "No record is lost or written twice: lines, dead letters and offset share one transaction.",
    Guarantee.AT_LEAST_ONCE: "No record is lost: an offset is saved after its lines. Later lines are written again.",
}


class Situation(NamedTuple):
    """
    What the service does now.

    Args:
        word: `outage`, `hangs`, `starting`, `standing by`, `handing over`, `stopping`, `stopped`, `paused`; or, while
            it works, the condition of its worst partition.
        ready: whether it does what an operator wants of it.
        says: the same as a sentence.
        since: when it began, in seconds since the epoch; None if that is unknown.
        happening: what happens without an operator; empty if that is obvious.
        safe: what is safe meanwhile; empty if nothing is in doubt.
        detail: what was asked of Kafka when it failed, and the answer.
        cure: what an operator can do; empty if nothing needs to be done.
        problem: its cause; None if nothing is wrong.
    """

    word: str
    level: Level
    ready: bool
    says: str
    since: float | None = None
    happening: str = ""
    safe: str = ""
    detail: str = ""
    cure: str = ""
    problem: Problem | None = None


def not_alive(snapshot: Snapshot, now: float) -> str:
    """Return why the service should be restarted; empty if it is alive. `now` is in seconds since the epoch."""
    limit = START_SECONDS if snapshot.phase is Phase.STARTING else ALIVE_SECONDS
    silent = now - snapshot.alive
    return f"the driver has given no sign of life for {silent:.0f} s" if silent > limit else ""


def not_ready(snapshot: Snapshot) -> str:
    """Return why the service is not working; empty if it is. A blocked partition does not affect readiness."""
    if snapshot.outage is not None:
        return str(snapshot.outage)
    reason = _idle(snapshot)
    return "" if reason is None or reason.ready else reason.says


def situation(snapshot: Snapshot, now: float) -> Situation:
    """Return what the service does at a time in seconds since the epoch."""
    if not_alive(snapshot, now):
        says, happening = "the driver gives no sign of life", "Tasks may work on until their round ends."
        safe = SAFE.get(snapshot.about.guarantee, "")
        return Situation("hangs", Level.BAD, False, says, snapshot.alive, happening, safe, cure=RESTART_PROCESS)
    return _idle(snapshot) or _work(snapshot)


def _idle(snapshot: Snapshot) -> Situation | None:
    """Return what keeps a living service from work; None if it works."""
    if snapshot.outage is not None:
        return _outage(snapshot, snapshot.outage)
    if snapshot.paused is not None and snapshot.phase in {Phase.STARTING, Phase.RUNNING}:
        says, since = f"paused from {snapshot.paused.by}", snapshot.paused.since / 1000
        happening, cure = "Nothing is read until somebody resumes it.", f"to resume, run {RESUME}"
        return Situation("paused", Level.WARNING, True, says, since, happening, cure=cure)
    if snapshot.stands_by:
        return _stand_by(snapshot)
    if snapshot.phase is Phase.RUNNING:
        return None
    if snapshot.phase is Phase.STARTING:
        return Situation("starting", Level.BUSY, False, f"starting: waits for {snapshot.step}", snapshot.step_since)
    word, happening = snapshot.phase.value, ""
    if leaving := snapshot.phase is Phase.LEAVING:
        word, happening = "handing over", "It works until another service takes over, or until handover.timeout."
    return Situation(word, Level.BUSY, leaving, f"the service is {snapshot.phase}", happening=happening)


def _outage(snapshot: Snapshot, outage: Problem) -> Situation:
    happening = "Tasks and driver try again every few seconds, and go on when it responds."
    if snapshot.phase is Phase.STARTING:
        happening = "The start tries again every few seconds, and goes on when it responds."
    safe = SAFE.get(snapshot.about.guarantee, "")
    says, _, detail = outage.cause.partition(" while ")
    return Situation("outage", Level.BAD, False, says, outage.since, happening, safe, detail, outage.cure, outage)


def _stand_by(snapshot: Snapshot) -> Situation:
    says = BEHIND_LATER if snapshot.taken else BEHIND_EQUAL
    since = None if snapshot.rival is None else snapshot.rival.since
    happening = "It starts to work when the other one has committed nothing for a minute."
    return Situation("standing by", Level.GOOD, False, says, since, happening, problem=snapshot.rival)


def _work(snapshot: Snapshot) -> Situation:
    found = {judge(each, snapshot).condition for each in snapshot.partitions.values()}
    worst = next((each for each in LEVELS if each in found), Condition.OK)
    return Situation(worst, LEVELS[worst], True, "running")
