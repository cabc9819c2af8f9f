"""The snapshot as Prometheus metrics. Each has the group as a label; no label is an offset or a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from app.offsets.metadata import Counts
from app.offsets.times import BOUNDS, NO_TIME, Histogram, TaskTimes
from app.status.condition import Condition, judge
from app.status.health import not_ready
from app.status.snapshot import Build, PartitionState, PartitionStatus, Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = {state: code for code, state in enumerate(PartitionState)}
CONDITIONS = {condition: code for code, condition in enumerate(Condition)}

Of = TypeVar("Of")
Value = TypeVar("Value", float | None, Histogram)


class Metric(NamedTuple, Generic[Of, Value]):
    """
    A metric of each partition, of each task, or of the whole service.

    Args:
        name: the exposed name; that of a counter ends in `_total`.
        value: its value at a time in seconds since the epoch; None if it has none now.
    """

    name: str
    meaning: str
    value: Callable[[Of, float], Value]


class Labelled(NamedTuple):
    """A metric whose labels say more than its partition or task."""

    name: str
    meaning: str
    labels: tuple[str, ...]


def _codes(codes: Mapping[PartitionState, int] | Mapping[Condition, int]) -> str:
    return ", ".join(f"{code} {name}" for name, code in codes.items())


def _group_lag(status: PartitionStatus) -> int | None:
    return None if status.committed is None else max(0, status.high_watermark - status.committed)


BUILD = Labelled("winnow_build_info", "always 1; the labels name the versions that run", Build._fields)
CONDITION = Labelled("winnow_partition_condition", f"condition: {_codes(CONDITIONS)}", ("topic", "partition"))
DEAD_LETTERS = Labelled(
    "winnow_dead_letters_total", "records written to the dead-letter topic", ("topic", "partition", "reason")
)
FILTERED = Labelled("winnow_filtered_total", "records that filters dropped", ("topic", "partition", "filter"))
ROUNDS = Labelled("winnow_rounds_total", "finished rounds", ("reason",))

PARTITIONS: Sequence[Metric[PartitionStatus, float | None]] = (
    Metric("winnow_records_in_total", "source records read", lambda p, _: p.counts.records),
    Metric("winnow_records_out_total", "records written to the sink", lambda p, _: p.counts.out),
    Metric("winnow_bytes_in_total", "bytes of source records read", lambda p, _: p.counts.bytes_in),
    Metric("winnow_bytes_out_total", "bytes of records written to the sink", lambda p, _: p.counts.bytes_out),
    Metric("winnow_lag_offsets", "offsets to read, up to the last stable offset", lambda p, _: p.lag),
    Metric(
        "winnow_lag_to_high_watermark_offsets",
        "offsets to read, up to the high watermark (includes open transactions)",
        lambda p, _: p.lag_to_high_watermark,
    ),
    Metric(
        "winnow_lag_seconds",
        "age of the first waiting record at the last look; 0 if none was waiting",
        lambda p, _: p.lag_seconds,
    ),
    Metric(
        "winnow_retention_margin_seconds",
        "time until retention deletes the first waiting record",
        PartitionStatus.retention_margin,
    ),
    Metric("winnow_lost_offsets_total", "offsets deleted by retention before they were read", lambda p, _: p.lost),
    Metric(
        "winnow_transactions_committed_total",
        "committed transactions; with at-least-once, saved offsets",
        lambda p, _: p.counts.committed,
    ),
    Metric(
        "winnow_transactions_aborted_total",
        "transactions aborted after an error; their records are read again",
        lambda p, _: p.counts.aborted,
    ),
    Metric(
        "winnow_transactions_fenced_total", "how often another owner took the partition over", lambda p, _: p.fenced
    ),
    Metric("winnow_producers_replaced_total", "producers replaced after an error", lambda p, _: p.reopened),
    Metric("winnow_last_commit_timestamp_seconds", "when the committed offset last moved", lambda p, _: p.moved),
    Metric(
        "winnow_open_transaction_age_seconds",
        "age at the last look of an upstream transaction that holds the last stable offset back; 0 if none does",
        lambda p, _: p.open_transaction_seconds,
    ),
    Metric("winnow_partition_state", f"state: {_codes(STATES)}", lambda p, _: STATES[p.state]),
    Metric(
        "kafka_consumergroup_group_lag",
        "as in kafka-consumer-groups: offsets from the committed one to the high watermark",
        lambda p, _: _group_lag(p),
    ),
    Metric("kafka_consumergroup_group_lag_seconds", "same as `winnow_lag_seconds`", lambda p, _: p.lag_seconds),
    Metric("kafka_consumergroup_group_offset", "the committed offset", lambda p, _: p.committed),
    Metric("kafka_partition_latest_offset", "the high watermark", lambda p, _: p.high_watermark),
)
TASKS: Sequence[Metric[TaskTimes, float | None]] = (
    Metric("winnow_task_wait_seconds_total", "time spent waiting for records", lambda t, _: t.waits),
    Metric("winnow_task_parse_seconds_total", "time spent parsing", lambda t, _: t.parse.seconds),
    Metric("winnow_task_produce_seconds_total", "time spent enqueueing lines to send", lambda t, _: t.produce.seconds),
    Metric("winnow_task_commit_seconds_total", "time spent committing", lambda t, _: t.commits),
)
TIMES: Sequence[Metric[TaskTimes, Histogram]] = (
    Metric("winnow_parse_seconds", "time to parse a chunk of records", lambda t, _: t.parse),
    Metric("winnow_produce_seconds", "time to enqueue the lines of a chunk to send", lambda t, _: t.produce),
    Metric("winnow_commit_seconds", "time to commit a partition", lambda t, _: t.commit),
)
SERVICE: Sequence[Metric[Snapshot, float | None]] = (
    Metric("winnow_start_timestamp_seconds", "when the service started", lambda s, _: s.started),
    Metric("winnow_alive_timestamp_seconds", "the driver's last heartbeat", lambda s, _: s.alive),
    Metric("winnow_ready", "1 while Kafka responds and rounds run", lambda s, _: int(not not_ready(s))),
    Metric("winnow_taken_over", "partitions taken over by a later generation", lambda s, _: len(s.taken)),
    Metric(
        "winnow_standing_by",
        "1 while it leaves the work to another service, and has not worked yet",
        lambda s, _: int(s.stands_by),
    ),
    Metric(
        "winnow_snapshot_age_seconds",
        "age of the offsets from Kafka behind these metrics",
        lambda s, now: None if s.looked is None else max(0.0, now - s.looked),
    ),
    Metric(
        "winnow_outage_seconds",
        "how long Kafka has not been responding to the driver; 0 while it responds",
        lambda s, now: 0 if s.outage is None else max(0.0, now - s.outage.since),
    ),
    Metric("winnow_filters_over_limit", "filters that drop more than their limit", lambda s, _: len(s.excesses)),
    Metric("winnow_problems", "current problems; `/api/status` lists each with its cure", lambda s, _: len(s.problems)),
    Metric(
        "kafka_consumergroup_group_max_lag",
        "the largest `kafka_consumergroup_group_lag`",
        lambda s, _: max((_group_lag(p) or 0 for p in s.partitions.values()), default=0),
    ),
)


def exposition(snapshot: Snapshot, now: float) -> bytes:
    return "".join(_lines(snapshot, now)).encode()


def _lines(snapshot: Snapshot, now: float) -> Iterator[str]:
    service = _labels({"group": snapshot.group})
    # A thousand partitions have 27,000 samples, so their labels are formatted once.
    statuses = [(f"{service},{_labels(at.as_json())}", status) for at, status in sorted(snapshot.partitions.items())]
    for metric in PARTITIONS:
        yield from _family(metric, ((at, metric.value(status, now)) for at, status in statuses))
    conditions = ((at, CONDITIONS[judge(status, snapshot).condition]) for at, status in statuses)
    yield from _family(CONDITION, conditions)
    yield from _family(DEAD_LETTERS, _counts(statuses, "reason", lambda counts: counts.dead))
    yield from _family(FILTERED, _counts(statuses, "filter", lambda counts: counts.filtered))
    endings = ((f"{service},{_labels({'reason': ending})}", count) for ending, count in snapshot.endings.items())
    yield from _family(ROUNDS, endings)
    tasks = [(f"{service},{_labels({'task': number})}", times) for number, times in sorted(snapshot.tasks.items())]
    for of_task in TASKS:
        yield from _family(of_task, ((at, of_task.value(times, now)) for at, times in tasks))
    everything = sum(snapshot.tasks.values(), NO_TIME)
    for histogram in TIMES:
        yield from _histogram(histogram, service, histogram.value(everything, now))
    for of_service in SERVICE:
        yield from _family(of_service, [(service, of_service.value(snapshot, now))])
    yield from _family(BUILD, [(f"{service},{_labels(snapshot.about.build._asdict())}", 1)])


def _counts(
    statuses: Iterable[tuple[str, PartitionStatus]], label: str, of: Callable[[Counts], Mapping[str, int]]
) -> Iterator[tuple[str, int]]:
    for labels, status in statuses:
        for name, count in of(status.counts).items():
            yield f"{labels},{_labels({label: name})}", count


def _histogram(metric: Metric[TaskTimes, Histogram], labels: str, found: Histogram) -> Iterator[str]:
    counts = (*found.counts, *(0,) * (len(BOUNDS) + 1 - len(found.counts)))
    buckets = [*accumulate(map(float, counts))]
    yield _heading(metric, "histogram")
    for bound, count in zip((*BOUNDS, "+Inf"), buckets, strict=True):
        yield f'{metric.name}_bucket{{{labels},le="{bound}"}} {count}\n'
    yield f"{metric.name}_count{{{labels}}} {buckets[-1]}\n{metric.name}_sum{{{labels}}} {found.seconds}\n"


def _family(metric: Metric[Of, float | None] | Labelled, samples: Iterable[tuple[str, float | None]]) -> Iterator[str]:
    """Yield a metric's lines; `samples` are labels as they are written, and values."""
    yield _heading(metric, "counter" if metric.name.endswith("_total") else "gauge")
    for labels, value in samples:
        if value is not None:
            yield f"{metric.name}{{{labels}}} {value}\n"


def _heading(metric: Metric[Of, Value] | Labelled, kind: str) -> str:
    return f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {kind}\n"


def _labels(labels: Mapping[str, object]) -> str:
    return ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
