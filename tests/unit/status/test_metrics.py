"""The metrics that Prometheus scrapes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families as plain_text
from prometheus_client.registry import Collector

from app.model import NOBODY, FirstWaiting, Partition
from app.offsets.metadata import Counts
from app.status.metrics import TIMES, exposition
from app.status.snapshot import Build, PartitionStatus, Phase, Problem, Snapshot
from tests.support.reference import all_metrics
from tests.unit.status.snapshots import BLOCKED, FLOWING, IDLE, NOTHING_YET, NOW, SNAPSHOT, large

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(snapshot: Snapshot, now: float = NOW) -> Samples:
    """Return each value by its metric and its labels, but the group, which each has."""
    found: Samples = {}
    for family in plain_text(exposition(snapshot, now).decode()):
        for sample in family.samples:
            assert snapshot.group == sample.labels.pop("group")
            found[sample.name, tuple(sample.labels.values())] = sample.value
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("winnow_records_in_total", 100),
        ("winnow_records_out_total", 90),
        ("winnow_bytes_in_total", 5_000),
        ("winnow_bytes_out_total", 4_000),
        ("winnow_lag_offsets", 50),
        ("winnow_lag_to_high_watermark_offsets", 90),
        ("winnow_lag_seconds", 110),
        ("winnow_retention_margin_seconds", 3_480),
        ("winnow_lost_offsets_total", 7),
        ("winnow_transactions_committed_total", 12),
        ("winnow_transactions_aborted_total", 1),
        ("winnow_transactions_fenced_total", 2),
        ("winnow_producers_replaced_total", 3),
        ("winnow_last_commit_timestamp_seconds", 9_995),
        ("winnow_open_transaction_age_seconds", 20),
        ("winnow_partition_state", 1),
        ("winnow_partition_condition", 1),
        ("kafka_consumergroup_group_lag", 90),
        ("kafka_consumergroup_group_lag_seconds", 110),
        ("kafka_consumergroup_group_offset", 900),
        ("kafka_partition_latest_offset", 990),
    ],
)
def test_a_metric_of_a_partition(name: str, value: float) -> None:
    """Each has topic and partition as labels, and the value of the snapshot; ages keep growing after it."""
    assert value == samples(SNAPSHOT)[name, ("raw", "0")]


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("winnow_dead_letters_total", ("raw", "0", "empty"), 8),
        ("winnow_rounds_total", ("rebalance",), 4),
        ("winnow_task_wait_seconds_total", ("1",), 43),
        ("winnow_task_parse_seconds_total", ("0",), 3),
        ("winnow_task_produce_seconds_total", ("0",), 1),
        ("winnow_task_commit_seconds_total", ("0",), 0.5),
        ("winnow_parse_seconds_bucket", ("0.0025",), 0),
        ("winnow_parse_seconds_bucket", ("0.005",), 5),
        ("winnow_produce_seconds_count", (), 5),
        ("winnow_commit_seconds_bucket", ("10.0",), 1),
        ("winnow_commit_seconds_bucket", ("+Inf",), 2),
        ("winnow_commit_seconds_sum", (), 20.25),
        ("winnow_start_timestamp_seconds", (), 8_000),
        ("winnow_alive_timestamp_seconds", (), 9_999),
        ("winnow_ready", (), 1),
        ("winnow_snapshot_age_seconds", (), 10),
        ("winnow_outage_seconds", (), 0),
        ("winnow_problems", (), 1),
        ("kafka_consumergroup_group_max_lag", (), 90),
        ("winnow_build_info", ("1.2.3", "3.11.9", "4.3.0", "2.16.0", "bulk"), 1),
    ],
)
def test_a_metric_of_the_service(name: str, labels: tuple[str, ...], value: float) -> None:
    """The service's metrics have a reason or a task's number as label, or none; histograms cover all tasks."""
    assert value == samples(SNAPSHOT)[name, labels]


def test_an_idle_partition_has_no_lag() -> None:
    """Its lag in seconds is 0 however old its last record is, and none of its records is in danger."""
    found = samples(SNAPSHOT)

    assert 0 == found["winnow_lag_seconds", ("other", "0")] == found["winnow_lag_offsets", ("other", "0")]
    assert ("winnow_retention_margin_seconds", ("other", "0")) not in found


def test_what_is_not_known_is_not_shown() -> None:
    """Without a committed offset, metrics that need one are absent; a wrong 0 would mislead."""
    found = samples(SNAPSHOT)

    for name in (
        "kafka_consumergroup_group_offset",
        "kafka_consumergroup_group_lag",
        "winnow_last_commit_timestamp_seconds",
    ):
        assert (name, ("raw", "0")) in found
        assert (name, ("other", "0")) not in found
    assert ("winnow_lag_seconds", ("raw", "1")) not in found
    assert IDLE.committed is None
    assert BLOCKED.waiting is None


def test_a_blocked_partition_is_seen() -> None:
    """Both its state and its condition say so."""
    found = samples(SNAPSHOT)

    assert (3, 4) == (found["winnow_partition_state", ("raw", "1")], found["winnow_partition_condition", ("raw", "1")])


def test_an_outage_has_an_age() -> None:
    """The metrics keep the last values, and two metrics say how old they are."""
    found = samples(replace(SNAPSHOT, outage=Problem("connection refused", "", 9_991.0)), now=NOW + 50)

    assert (59, 60) == (found["winnow_outage_seconds", ()], found["winnow_snapshot_age_seconds", ()])
    assert (0, 100) == (found["winnow_ready", ()], found["winnow_records_in_total", ("raw", "0")])


def test_an_open_transaction_ages_only_while_somebody_looks() -> None:
    """In an outage or a long round it may have ended long ago. After an outage there is no look yet."""
    age = "winnow_open_transaction_age_seconds", ("raw", "0")
    nobody_looked = replace(SNAPSHOT, partitions={FLOWING.partition: replace(FLOWING, points=())})

    assert 20 == samples(replace(SNAPSHOT, outage=Problem("connection refused", "", 9_991.0)), now=NOW + 400)[age]
    assert age not in samples(nobody_looked)
    assert 0 == samples(SNAPSHOT)["winnow_open_transaction_age_seconds", ("other", "0")]


def test_a_service_that_stands_by() -> None:
    """It is not ready, but that is no alert: the alert checks whether it stands by, behind whichever generation."""
    taken = dict.fromkeys(SNAPSHOT.partitions, NOBODY)
    found = samples(replace(SNAPSHOT, phase=Phase.STARTING, taken=taken))
    equal = samples(replace(SNAPSHOT, phase=Phase.STARTING, rival=Problem("another service works", "", 9_000.0)))

    assert (0, len(taken)) == (found["winnow_ready", ()], found["winnow_taken_over", ()])
    assert (0, 0) == (equal["winnow_ready", ()], equal["winnow_taken_over", ()])
    assert (1, 1) == (found["winnow_standing_by", ()], equal["winnow_standing_by", ()])
    assert 0 == samples(SNAPSHOT)["winnow_standing_by", ()]


def test_before_the_first_look() -> None:
    """There are no partitions yet, but the service's own metrics exist."""
    found = samples(NOTHING_YET)

    assert (0, 0) == (found["winnow_ready", ()], found["kafka_consumergroup_group_max_lag", ()])
    assert ("winnow_snapshot_age_seconds", ()) not in found


def test_every_metric_is_declared() -> None:
    """Names, types and labels are as declared, and no label is an offset or a line."""
    declared = {name: set(labels.replace(",", "").split()) for name, labels, _ in all_metrics()}
    seen = {
        re.sub("_(bucket|sum|count)$", "", sample.name): (family.type, set(sample.labels) - {"group", "le"})
        for family in plain_text(exposition(SNAPSHOT, NOW).decode())
        for sample in family.samples
    }

    assert declared == {name: labels for name, (_, labels) in seen.items()}
    of_build = declared.pop("winnow_build_info")
    assert set(Build._fields) == of_build
    assert {"topic", "partition", "reason", "task", "filter"} >= set().union(*declared.values())
    for name, (kind, _) in seen.items():
        usual = "counter" if name.endswith("_total") else "gauge"
        assert ("histogram" if name in {each.name for each in TIMES} else usual) == kind


class Read(Collector):
    """The families that the library reads in a text."""

    def __init__(self, text: str) -> None:
        self.families = list(plain_text(text))

    def collect(self) -> list[Metric]:
        return self.families


def test_the_text_is_that_of_the_library() -> None:
    """The library reads it and writes the same: names, types, meanings, labels and values, large and small."""
    odd, group, reason = Partition('a"b\\c\nd', 0), "g{,}", 'say "no"'
    status = replace(FLOWING, partition=odd, counts=Counts(10**18, 2, {reason: 3}), moved=1.7e9 + 0.123456)
    partitions = {**SNAPSHOT.partitions, odd: status}
    ours = Read(exposition(replace(SNAPSHOT, group=group, partitions=partitions), NOW).decode())
    registry = CollectorRegistry()
    registry.register(ours)

    assert ours.families == list(plain_text(generate_latest(registry).decode()))
    found = {(s.name, *s.labels.values()): s.value for family in ours.families for s in family.samples}
    assert (10**18, 3, 1.7e9 + 0.123456) == (
        found["winnow_records_in_total", group, odd.topic, "0"],
        found["winnow_dead_letters_total", group, odd.topic, "0", reason],
        found["winnow_last_commit_timestamp_seconds", group, odd.topic, "0"],
    )


def test_a_thousand_partitions_fit_into_a_scrape() -> None:
    """The text stays below 5 MB, with eight reasons of dead letters in each partition."""
    body = exposition(large(1_000), NOW)

    assert 20_000 < body.count(b"\n")
    assert len(body) < 5_000_000


def test_a_lag_in_seconds_is_never_negative() -> None:
    """A producer's clock may be ahead of ours. A margin may be negative, if deletion is overdue."""
    ahead = replace(FLOWING, waiting=FirstWaiting(NOW + 5))
    overdue: PartitionStatus = replace(FLOWING, waiting=FirstWaiting(NOW - 4_000, 3_600.0))

    assert (0.0, -400.0) == (ahead.lag_seconds, overdue.retention_margin(NOW))


def test_a_lag_in_seconds_is_that_of_the_last_look() -> None:
    """It does not grow with the age of the snapshot, because the records may be done by now."""
    later = samples(SNAPSHOT, now=NOW + 8)

    assert 110 == later["winnow_lag_seconds", ("raw", "0")]
    assert 3_472 == later["winnow_retention_margin_seconds", ("raw", "0")], "an outage does not hold up retention"


def test_a_lag_without_records_is_no_time() -> None:
    """Offsets without a record, such as those of an aborted transaction, are not waiting records."""
    found = replace(FLOWING, waiting=FirstWaiting(None, 3_600.0))

    assert (0.0, None) == (found.lag_seconds, found.retention_margin(NOW))
