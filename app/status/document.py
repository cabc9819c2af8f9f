"""The snapshot as JSON, for programs and the status page. Added fields keep `version`; any other change raises it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from app.cures import CommandLine, parts
from app.offsets.metadata import Counts
from app.offsets.times import TaskTimes
from app.status.condition import judge, records_per_second
from app.status.health import not_alive, not_ready, situation
from app.status.snapshot import VERSION, PartitionStatus, Problem, RoundStatus, Snapshot
from app.status.window import Moment

Document = dict[str, Any]
HOUR = ("at", "records", "out", "dead", "lag")


def document(snapshot: Snapshot, now: float) -> Document:
    """Return everything that is known. Times, like `now`, are in seconds since the epoch."""
    about, line = snapshot.about, snapshot.about.command_line
    return {
        "version": VERSION,
        "now": now,
        "at": snapshot.at,
        "age": None if snapshot.looked is None else max(0.0, now - snapshot.looked),
        "group": snapshot.group,
        "started": snapshot.started,
        "about": about._asdict() | {"build": about.build._asdict(), "command_line": line._asdict()},
        "phase": snapshot.phase,
        "cause": snapshot.cause,
        "service": _service(snapshot, now),
        "paused": None if snapshot.paused is None else snapshot.paused._asdict(),
        "not_alive": not_alive(snapshot, now),
        "not_ready": not_ready(snapshot),
        "lag": snapshot.lag,
        "records_per_second": _total_rate(snapshot),
        "totals": _counts(snapshot.totals),
        "tasks": [_task(number, times) for number, times in sorted(snapshot.tasks.items())],
        "problems": [_problem(each, line) for each in snapshot.problems],
        "warnings": list(snapshot.warnings),
        "findings": [_advice(each, line) for each in snapshot.warnings],
        "round": None if snapshot.round is None else _round(snapshot.round),
        "ended_rounds": [_round(each) for each in snapshot.ended],
        "endings": dict(snapshot.endings),
        "partitions": [_partition(each, snapshot, now) for _, each in sorted(snapshot.partitions.items())],
        "mirrors": [each._asdict() for each in snapshot.mirrors],
        "hour": [dict(zip(HOUR, each, strict=False)) for each in snapshot.hour],
    }


def history(snapshot: Snapshot) -> Document:
    """Return the last hour and, with fewer moments, the last day, in columns; and the limits of the configuration."""
    return {
        "version": VERSION,
        "hour": _columns(snapshot.hour),
        "day": _columns(snapshot.day),
        "limits": {"records_per_second": snapshot.rate_limit, "dead_letters_ratio": snapshot.about.breaker_ratio},
    }


def _columns(moments: Sequence[Moment]) -> Document:
    reasons = moments[-1].reasons if moments else {}
    return {
        "at": [round(each.at, 1) for each in moments],
        "records": [each.records for each in moments],
        "lag": [each.lag for each in moments],
        "dead": {reason: [each.reasons.get(reason, 0) for each in moments] for reason in reasons},
    }


def _service(snapshot: Snapshot, now: float) -> Document:
    current, line = situation(snapshot, now), snapshot.about.command_line
    problem = current.problem
    return current._asdict() | {
        "problem": None if problem is None else _problem(problem, line),
        "advice": _advice(current.cure, line),
    }


def _advice(cure: str, line: CommandLine) -> list[Document]:
    """Return the parts of a cure, with the exact commands of this service."""
    return [each._asdict() for each in parts(cure, line)]


def _total_rate(snapshot: Snapshot) -> float | None:
    rates = [records_per_second(each, snapshot) for each in snapshot.partitions.values()]
    known = [each for each in rates if each is not None]
    return sum(known) if known else None


def _partition(status: PartitionStatus, snapshot: Snapshot, now: float) -> Document:
    condition, seconds_to_close = judge(status, snapshot)
    return {
        **status.partition.as_json(),
        "lag": status.lag,
        "lag_seconds": status.lag_seconds,
        "retention_margin_seconds": status.retention_margin(now),
        "lost": status.lost,
        "fenced": status.fenced,
        "producers_replaced": status.reopened,
        "last_commit": status.moved,
        "committed": status.committed,
        "high_watermark": status.high_watermark,
        "state": status.state,
        "since": status.since,
        "condition": condition,
        "seconds_to_close": seconds_to_close,
        "records_per_second": records_per_second(status, snapshot),
        "rate_limit": status.rate_limit,
        "log_start": status.log_start,
        "last_stable": status.last_stable,
        "open_transaction_since": status.unstable_since,
        "recovered": status.recovered,
        "skipped": status.skipped,
        "rewound": status.rewound,
        "problem": None if status.problem is None else _problem(status.problem, snapshot.about.command_line),
        **_counts(status.counts),
    }


def _counts(counts: Counts) -> Document:
    return {
        "records": counts.records,
        "out": counts.out,
        "dead": dict(counts.dead),
        "filtered": dict(counts.filtered),
        "bytes_in": counts.bytes_in,
        "bytes_out": counts.bytes_out,
        "transactions_committed": counts.committed,
        "transactions_aborted": counts.aborted,
    }


def _task(number: int, times: TaskTimes) -> Document:
    return {
        "task": number,
        "wait_seconds": times.waits,
        "parse_seconds": times.parse.seconds,
        "produce_seconds": times.produce.seconds,
        "commit_seconds": times.commits,
    }


def _problem(problem: Problem, line: CommandLine) -> Document:
    where = problem.partition
    return {
        "cause": problem.cause,
        "cure": problem.cure,
        "advice": _advice(problem.cure, line),
        "warns": problem.warns,
        "since": problem.since,
        "topic": None if where is None else where.topic,
        "partition": None if where is None else where.number,
        "offset": problem.offset,
    }


def _round(status: RoundStatus) -> Document:
    known = {each.name: getattr(status, each.name) for each in fields(status)}
    return known | {"counts": None if status.counts is None else _counts(status.counts)}
