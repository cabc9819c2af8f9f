"""The log as a function of two snapshots: it reports the changes between them."""

from __future__ import annotations

from collections.abc import Iterator

from app.cures import ANY, RESUME
from app.events import REMIND_SECONDS, Event
from app.model import NOBODY, latest
from app.offsets.metadata import Counts
from app.status.condition import Condition, judge
from app.status.snapshot import Ending, PartitionState, PartitionStatus, Phase, Problem, RoundStatus, Snapshot

# How many names one log line lists.
SHOWN = 5

# Endings of a round that are logged; the others are usual.
ENDINGS = {
    Ending.REBALANCE: Event.REBALANCE,
    Ending.STARVED: Event.TASK_STARVED,
    Ending.OVERDUE: Event.TASK_OVERDUE,
    Ending.LOST: Event.ROUND_FAILED,
}
# What a problem is called; in other states the partition waits.
PROBLEMS = {PartitionState.BLOCKED: Event.PARTITION_BLOCKED, PartitionState.FAILED: Event.PARTITION_FAILED}
# In these states a problem means that something is unavailable; otherwise a task works on the partition.
WORKED_ON = (PartitionState.PLANNED, PartitionState.RUNNING, PartitionState.PAUSED)

Line = tuple[Event, dict[str, object]]
"""An event with its fields."""


def write(before: Snapshot, after: Snapshot) -> None:
    """Log what changed; a listener of the status tracker."""
    number = {} if after.round is None else {"round": after.round.number}
    for event, fields in lines(before, after):
        event.log(**number, **fields)


def lines(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    yield from _started(before, after)
    yield from _outage(before, after)
    yield from _others(before, after)
    if after.warnings is not before.warnings:
        for each in after.warnings:
            yield Event.PREFLIGHT_WARNING, {"finding": each}
    yield from _pause(before, after)
    yield from _excesses(before, after)
    for partition, status in after.partitions.items():
        was = before.partitions.get(partition)
        yield from _unstable(was, status)
        yield from _problem(before, after, was, status)
        yield from _moved(was, status)
        yield from _stalled(before, after, status)
    if after.round is not None:
        yield from _round(before.round, after.round)
    if after.progress is not None and after.progress is not before.progress:
        counts, seconds = after.progress.counts, after.progress.seconds
        yield Event.PROGRESS, _flow(counts, seconds) | {"lag": after.lag}
    yield from _phase(before, after)


def _started(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    if after.about is not before.about:
        about = after.about
        work = {name: getattr(about, name) for name in ("generation", "guarantee", "sources", "sink", "dead_letters")}
        yield Event.STARTED, about.build._asdict() | work


def _phase(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    if after.phase is Phase.LEAVING and before.phase is not Phase.LEAVING:
        yield Event.HANDING_OVER, {"cause": after.cause}
    if after.phase is Phase.STOPPING and before.phase is not Phase.STOPPING:
        yield Event.STOPPING, {"cause": after.cause}
    if after.phase is Phase.STOPPED and before.phase is not Phase.STOPPED:
        totals = after.totals
        counts = {"records": totals.records, "out": totals.out, "dead": totals.dead_total} | _filtered(totals)
        yield Event.STOPPED, {"cause": after.cause, **counts}


def _outage(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    if after.outage and (not before.outage or _another_minute(before, after, after.outage.since)):
        waited = {"waited_seconds": _waited(after, after.outage)} if before.outage else {}
        yield Event.KAFKA_UNAVAILABLE, waited | {"reason": str(after.outage)}
    if before.outage and not after.outage:
        yield Event.KAFKA_AVAILABLE, {"waited_seconds": _waited(after, before.outage)}


def _others(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    rival = after.rival
    if rival and (before.rival is None or _another_minute(before, after, rival.since)):
        event = Event.STANDING_BY if after.stands_by else Event.RIVAL
        yield event, {"rival": str(rival)}
    again = after.stands_by and _another_minute(before, after, after.step_since)
    if after.taken and (again or len(after.taken) != len(before.taken)):
        fields = {
            "by": str(latest(after.taken.values())),
            "taken": len(after.taken),
            "partitions": len(after.partitions),
        }
        yield Event.STANDING_BY if after.stands_by else Event.TAKEN_OVER, fields
    if before.taken and not after.taken:
        yield Event.TAKEOVER_ABANDONED, {}
    if after.fenced and after.fenced is not before.fenced:
        owners = sorted({str(owner) for owner in after.fenced.values() if owner not in (None, NOBODY)})
        where = [str(partition) for partition in sorted(after.fenced)]
        fields = {"count": len(where), "partitions": where[:SHOWN], "offsets_committed_by": owners[:SHOWN]}
        yield Event.PARTITIONS_FENCED, fields


def _pause(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    """Yield the beginning of a pause, a reminder each minute, and the end of the pause."""
    if after.paused and (before.paused is None or _another_minute(before, after, after.paused.since / 1000)):
        yield Event.PAUSED, {"reason": f"{after.paused}; to resume, run {RESUME}"}
    if before.paused and not after.paused:
        yield Event.RESUMED, {"paused_seconds": round(after.at - before.paused.since / 1000, 1)}


def _excesses(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    """Yield each filter above its limit, again each minute, and when it is below."""
    for name, problem in after.excesses.items():
        if name not in before.excesses or _another_minute(before, after, problem.since):
            yield Event.FILTER_OVER_LIMIT, {"filter": name, "reason": str(problem)}
    for name in before.excesses.keys() - after.excesses.keys():
        yield Event.FILTER_WITHIN_LIMIT, {"filter": name}


def _waited(snapshot: Snapshot, problem: Problem) -> float:
    return round(snapshot.at - problem.since, 1)


def _another_minute(before: Snapshot, after: Snapshot, since: float) -> bool:
    """Return whether something that began at `since` has lasted another full minute."""
    return int(after.at - since) // REMIND_SECONDS > max(0, int(before.at - since) // REMIND_SECONDS)


def _unstable(before: PartitionStatus | None, after: PartitionStatus) -> Iterator[Line]:
    """Yield, each minute, that records wait behind a producer's open transaction."""
    told = (before and before.open_transaction_seconds) or 0.0
    seconds = after.open_transaction_seconds or 0.0
    if seconds // REMIND_SECONDS > told // REMIND_SECONDS:
        where = f"--topic {after.partition.topic} --partition {after.partition.number}"
        find, abort = ANY.find_hanging(where), ANY.abort(where, after.last_stable)
        fields = {
            "seconds": round(seconds, 1),
            "offset": after.last_stable,
            "waiting": after.high_watermark - after.last_stable,
            "cure": f"if its producer is gone: {find}, then {abort}",
        }
        yield Event.OPEN_TRANSACTION, fields | after.partition.as_json()


def _problem(before: Snapshot, after: Snapshot, was: PartitionStatus | None, status: PartitionStatus) -> Iterator[Line]:
    """Yield a partition's problem, again each minute unless the next round tries again, and its end."""
    where, problem, state = status.partition.as_json(), status.problem, status.state
    known = str(was.problem) if was and was.problem else ""
    event = PROBLEMS.get(state, Event.PARTITION_WAITING)
    if problem and str(problem) != known:
        offset = {"offset": status.committed} if state is PartitionState.FAILED else {}
        yield event, {"error": str(problem)} | offset | where
    elif problem and state is not PartitionState.FAILED and _another_minute(before, after, problem.since):
        yield event, {"waited_seconds": _waited(after, problem), "error": str(problem), **where}
    if was and was.state in WORKED_ON and state in WORKED_ON and known and not problem:
        yield Event.PARTITION_WAIT_OVER, where
    if was and was.state is PartitionState.BLOCKED and state is not PartitionState.BLOCKED:
        yield Event.PARTITION_UNBLOCKED, where


def _moved(before: PartitionStatus | None, after: PartitionStatus) -> Iterator[Line]:
    where = after.partition.as_json()
    if after.skipped and (before is None or after.skipped != before.skipped):
        start, end = after.skipped
        yield Event.OFFSETS_SKIPPED, {"start": start, "end": end, "lost": end - start, **where}
    if after.rewound and (before is None or after.rewound != before.rewound):
        start, end = after.rewound
        yield Event.OFFSETS_REREAD, {"start": start, "end": end, "again": end - start, **where}
    if after.recovered and before is not None and after.reopened > before.reopened:
        fields = {"error": after.recovered, "reopened": after.reopened - before.reopened, "offset": after.committed}
        yield Event.PARTITION_RECOVERED, fields | where


def _stalled(before: Snapshot, after: Snapshot, status: PartitionStatus) -> Iterator[Line]:
    """Yield, each minute, that a partition stands still for an unknown cause."""
    since = status.moved or after.started
    if _another_minute(before, after, since) and judge(status, after).condition is Condition.STALLED:
        fields = {"seconds": round(after.at - since, 1), "lag": status.lag, "offset": status.committed}
        yield Event.PARTITION_STALLED, fields | status.partition.as_json()


def _round(before: RoundStatus | None, after: RoundStatus) -> Iterator[Line]:
    if before is None or before.number != after.number:
        return
    if after.lost_tasks > before.lost_tasks:
        yield Event.TASK_LOST, {"lost": after.lost_tasks}
    if after.ending in ENDINGS and after.ending is not before.ending:
        yield ENDINGS[after.ending], {"reason": after.reason} if after.reason else {}
    if after.killed and not before.killed:
        yield Event.TASKS_KILLED, {}
    if after.counts is not None and before.counts is None:
        flow = _flow(after.counts, after.seconds or 0)
        yield Event.ROUND, {**flow, "out": after.counts.out, "lag_before": after.lag_before}


def _flow(counts: Counts, seconds: float) -> dict[str, object]:
    per_second = round(counts.records / seconds) if seconds > 0 else 0
    rates = {"seconds": round(seconds, 1), "per_second": per_second}
    return {"records": counts.records, "dead": counts.dead_total, **_filtered(counts), **rates}


def _filtered(counts: Counts) -> dict[str, int]:
    """Return the field that only a service with filters has."""
    return {"filtered": counts.filtered_total} if counts.filtered else {}
