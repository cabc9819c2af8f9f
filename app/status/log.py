"""The log as a function of two snapshots: what changed between them, never what stayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import structlog

from app.cures import ANY, RESUME
from app.model import NOBODY, Partition, latest
from app.status.condition import Condition, judge
from app.status.health import BEHIND_EQUAL, BEHIND_LATER
from app.status.snapshot import End, PartitionState, PartitionStatus, Phase, Problem, RoundStatus, Snapshot

log = structlog.get_logger()

REMIND_SECONDS = 60
# How many names one line of the log lists.
SHOWN = 5

# What a person reads where a round ends early; a rebalance and a stop are usual.
ENDINGS = {
    End.REBALANCE: ("info", "the round ends for a rebalance"),
    End.STARVED: ("warning", "a task finds no slot; the round ends for a rebalance"),
    End.OVERDUE: ("warning", "a task does not end; the round ends for a rebalance"),
    End.LOST: ("error", "round failed; nothing is lost, the next one goes on from the committed offsets"),
}
# A partition in these states has a problem only while something is away; otherwise its task works on it.
WORKED_ON = (PartitionState.PLANNED, PartitionState.RUNNING, PartitionState.PAUSED)


class Line(NamedTuple):
    """One line of the log."""

    level: str
    event: str
    fields: dict[str, object]


def write(before: Snapshot, after: Snapshot) -> None:
    """Log what changed; a listener of the status tracker."""
    number = {} if after.round is None else {"round": after.round.number}
    for level, event, fields in lines(before, after):
        getattr(log, level)(event, **number, **fields)


def lines(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    """Yield a line for each change that a person wants to know of."""
    yield from _started(before, after)
    yield from _outage(before, after)
    yield from _others(before, after)
    if after.warnings is not before.warnings:
        yield from (Line("warning", "preflight", {"finding": each}) for each in after.warnings)
    yield from _pause(before, after)
    yield from _unstable(before, after)
    for partition, status in after.partitions.items():
        yield from _partition(before.partitions.get(partition), status)
        yield from _still(before, after, status)
    if after.round is not None:
        yield from _round(before.round, after.round)
    if after.progress is not None and after.progress is not before.progress:
        counts, seconds = after.progress.counts, after.progress.seconds
        yield Line("info", "progress", _flow(counts.records, counts.dead_total, seconds) | {"lag": after.lag})
    yield from _phase(before, after)


def _started(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    if after.about is not before.about:
        work = after.about._asdict()
        yield Line("info", "started", work.pop("build")._asdict() | work)


def _phase(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    if after.phase is Phase.LEAVING and before.phase is not Phase.LEAVING:
        event = "asked to stop; this service works on until another one takes over, or handover.timeout is over"
        yield Line("info", event, {"cause": after.cause})
    if after.phase is Phase.STOPPING and before.phase is not Phase.STOPPING:
        yield Line("info", "stopping", {"cause": after.cause})
    if after.phase is Phase.STOPPED and before.phase is not Phase.STOPPED:
        totals = after.totals
        counts = {"records": totals.records, "out": totals.out, "dead": totals.dead_total}
        yield Line("info", "stopped", {"cause": after.cause, **counts})


def _outage(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    tasks_go_on = after.round is not None and after.round.seconds is None
    if after.outage and not before.outage:
        event = "Kafka does not answer the driver; the tasks go on" if tasks_go_on else "waiting for Kafka"
        yield Line("warning", event, {"reason": str(after.outage)})
    if before.outage and after.outage and _another_minute(before, after, after.outage.since):
        fields = {"waited_seconds": _waited(after, after.outage), "reason": str(after.outage)}
        yield Line("warning", "still waiting for Kafka", fields)
    if before.outage and not after.outage:
        event = "Kafka answers the driver again" if tasks_go_on else "Kafka is back"
        yield Line("info", event, {"waited_seconds": _waited(after, before.outage)})


def _others(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    """Yield what other runs of the service do to this one."""
    rival = after.rival
    if rival and (before.rival is None or _another_minute(before, after, rival.since)):
        event = "another service works for this group; this one, which started later, goes on"
        if after.phase is Phase.STARTING:
            event = BEHIND_EQUAL
        yield Line("warning", event, {"rival": str(rival)})
    if after.taken and len(after.taken) != len(before.taken):
        event = "a later generation takes over; this service goes on with what it still has"
        if after.round is None:
            event = BEHIND_LATER
        fields = {
            "by": str(latest(after.taken.values())),
            "taken": len(after.taken),
            "partitions": len(after.partitions),
        }
        yield Line("info", event, fields)
    if before.taken and not after.taken:
        yield Line("warning", "the later generation is gone; this service works on everything again", {})
    if after.fenced and after.fenced is not before.fenced:
        owners = sorted({str(owner) for owner in after.fenced.values() if owner not in (None, NOBODY)})
        where = [str(partition) for partition in sorted(after.fenced)]
        fields = {"count": len(where), "partitions": where[:SHOWN], "offsets_committed_by": owners[:SHOWN]}
        yield Line("warning", "partitions were fenced, and not by this driver", fields)


def _pause(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    """Yield that a person has paused the service, and say so again each minute."""
    if after.paused and (before.paused is None or _another_minute(before, after, after.paused.since / 1000)):
        event = "paused; no records are taken" if before.paused is None else "still paused; no records are taken"
        yield Line("warning", event, {"reason": f"{after.paused}: {RESUME} ends it"})
    if before.paused and not after.paused:
        yield Line("info", "resumed", {"paused_seconds": round(after.at - before.paused.since / 1000, 1)})


def _waited(snapshot: Snapshot, problem: Problem) -> float:
    return round(snapshot.at - problem.since, 1)


def _another_minute(before: Snapshot, after: Snapshot, since: float) -> bool:
    """Return whether something that began at `since` has lasted for another whole minute."""
    return int(after.at - since) // REMIND_SECONDS > max(0, int(before.at - since) // REMIND_SECONDS)


def _unstable(before: Snapshot, after: Snapshot) -> Iterator[Line]:
    """Yield each partition whose records have waited behind an open transaction of a producer for another minute."""
    for partition, status in after.partitions.items():
        since = status.unstable_since
        if since is not None and not after.outage and _another_minute(before, after, since):
            where = f"--topic {partition.topic} --partition {partition.number}"
            fields = {
                "seconds": round(after.at - since, 1),
                "offset": status.last_stable,
                "waiting": status.high_watermark - status.last_stable,
                "cure": f"if its producer is gone: {ANY.find_hanging(where)}, "
                f"then {ANY.abort(where, status.last_stable)}",
            }
            yield Line(
                "warning", "an upstream transaction stays open; records wait behind it", fields | _where(partition)
            )


def _partition(before: PartitionStatus | None, after: PartitionStatus) -> Iterator[Line]:
    where = _where(after.partition)
    was = before.state if before else None
    problem_before = str(before.problem) if before and before.problem else ""
    if after.problem and str(after.problem) != problem_before:
        if after.state is PartitionState.BLOCKED:
            yield Line("error", "partition blocked; the others go on", {"error": str(after.problem), **where})
        elif after.state is PartitionState.FAILED:
            fields = {"error": str(after.problem), "offset": after.committed, **where}
            yield Line("warning", "partition failed; the next round tries again", fields)
        else:
            yield Line("warning", "partition waits; the others go on", {"error": str(after.problem), **where})
    if was in WORKED_ON and after.state in WORKED_ON and problem_before and not after.problem:
        yield Line("info", "partition goes on", where)
    if was is PartitionState.BLOCKED and after.state is not PartitionState.BLOCKED:
        yield Line("info", "partition no longer blocked", where)
    yield from _moved(before, after)
    if after.recovered and before is not None and after.reopened > before.reopened:
        fields = {"error": after.recovered, "reopened": after.reopened - before.reopened, "offset": after.committed}
        yield Line("info", "partition recovered", fields | where)


def _still(before: Snapshot, after: Snapshot, status: PartitionStatus) -> Iterator[Line]:
    """Yield what has kept a partition from going on for another minute: a problem, or nobody knows what."""
    problem, where = status.problem, _where(status.partition)
    if problem and status.state is not PartitionState.FAILED and _another_minute(before, after, problem.since):
        level, state = ("error", "blocked") if status.state is PartitionState.BLOCKED else ("warning", "waits")
        fields = {"waited_seconds": _waited(after, problem), "error": str(problem), **where}
        yield Line(level, f"partition still {state}; the others go on", fields)
    still_since = status.moved or after.started
    if _another_minute(before, after, still_since) and judge(status).condition is Condition.STALLED:
        fields = {"seconds": round(after.at - still_since, 1), "lag": status.lag, "offset": status.committed, **where}
        yield Line("warning", "partition is stalled: records wait, and its offset does not move", fields)


def _moved(before: PartitionStatus | None, after: PartitionStatus) -> Iterator[Line]:
    where = _where(after.partition)
    if after.skipped and (before is None or after.skipped != before.skipped):
        start, end = after.skipped
        fields = {"start": start, "end": end, "lost": end - start, **where}
        yield Line("warning", "offsets skipped, as out.of.range says", fields)
    if after.rewound and (before is None or after.rewound != before.rewound):
        start, end = after.rewound
        fields = {"start": start, "end": end, "again": end - start, **where}
        yield Line("warning", "offsets are read again, as out.of.range says", fields)


def _round(before: RoundStatus | None, after: RoundStatus) -> Iterator[Line]:
    if before is None or before.number != after.number:
        return
    if after.lost_tasks > before.lost_tasks:
        yield Line("warning", "a task was lost; Spark tries it again", {"lost": after.lost_tasks})
    if after.ending in ENDINGS and after.ending is not before.ending:
        level, event = ENDINGS[after.ending]
        yield Line(level, event, {"reason": after.reason} if after.reason else {})
    if after.killed and not before.killed:
        yield Line("info", "tasks are killed; what they have not committed is done again", {})
    if after.counts is not None and before.counts is None:
        flow = _flow(after.counts.records, after.counts.dead_total, after.seconds or 0)
        yield Line("info", "round", {**flow, "out": after.counts.out, "lag_before": after.lag_before})


def _flow(records: int, dead: int, seconds: float) -> dict[str, object]:
    per_second = round(records / seconds) if seconds > 0 else 0
    return {"records": records, "dead": dead, "seconds": round(seconds, 1), "per_second": per_second}


def _where(partition: Partition) -> dict[str, object]:
    return {"topic": partition.topic, "partition": partition.number}
