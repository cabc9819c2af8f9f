"""The log is a function of two snapshots: one line for each change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from app.errors import Leaderless, OutOfRange
from app.events import Event
from app.model import NOBODY, Owner, Partition, Pause
from app.offsets.metadata import Counts
from app.status import log
from app.status.snapshot import (
    About,
    Advance,
    Build,
    Ending,
    PartitionState,
    PartitionStatus,
    Phase,
    Problem,
    RoundStatus,
    Snapshot,
)
from app.status.window import Point

P = Partition("raw", 3)
LOST = Problem.of(OutOfRange(P, "offsets 1 to 4 were deleted", 1, "reset the offset"), since=90)
STATUS = PartitionStatus(P, PartitionState.RUNNING, since=50, committed=10)
ROUND = RoundStatus(number=1, began=50, slots=2, tasks=2, partitions=8, lag_before=400)
BEFORE = Snapshot(at=100, group="g", started=10, phase=Phase.RUNNING, partitions={P: STATUS}, round=ROUND)


def events(before: Snapshot, after: Snapshot) -> list[tuple[str, str]]:
    return [(event.level, event.key) for event, _ in log.lines(before, after)]


def fields(before: Snapshot, after: Snapshot) -> dict[str, object]:
    ((_, found),) = log.lines(before, after)
    return found


def with_partition(**changes: object) -> Snapshot:
    return replace(BEFORE, partitions={P: replace(STATUS, **changes)})  # type: ignore[arg-type]  # its own fields


def with_round(**changes: object) -> Snapshot:
    return replace(BEFORE, round=replace(ROUND, **changes))  # type: ignore[arg-type]  # its own fields


BLOCKED = with_partition(state=PartitionState.BLOCKED, problem=LOST, lag=7)
FAILED = with_partition(state=PartitionState.FAILED, problem=Problem("raw-3@9: broken", "", 90))
OUTAGE = replace(BEFORE, outage=Problem("connection refused", "", 60))


@pytest.mark.parametrize("snapshot", [BEFORE, BLOCKED, FAILED, OUTAGE, with_round(ending=Ending.STARVED)])
def test_a_state_is_logged_once(snapshot: Snapshot) -> None:
    """However often the driver checks, a state is logged only when it begins."""
    assert [] == events(snapshot, replace(snapshot, at=110))


@pytest.mark.parametrize(
    ("after", "line"),
    [
        (BLOCKED, ("error", "partition_blocked")),
        (FAILED, ("warning", "partition_failed")),
        (with_partition(recovered="slow", reopened=1), ("info", "partition_recovered")),
        (with_partition(skipped=(4, 9)), ("warning", "offsets_skipped")),
        (with_partition(rewound=(4, 9)), ("warning", "offsets_reread")),
        (replace(BEFORE, warnings=("mind it",)), ("warning", "preflight_warning")),
        (OUTAGE, ("warning", "kafka_unavailable")),
        (with_round(lost_tasks=1), ("warning", "task_lost")),
        (with_round(ending=Ending.REBALANCE, reason="new"), ("info", "rebalance")),
        (with_round(ending=Ending.STARVED), ("warning", "task_starved")),
        (with_round(ending=Ending.OVERDUE), ("warning", "task_overdue")),
        (with_round(killed=True), ("info", "tasks_killed")),
        (with_round(seconds=9.0, counts=Counts(1, 1)), ("info", "round")),
        (
            replace(BEFORE, phase=Phase.LEAVING, cause="SIGTERM"),
            ("info", "handing_over"),
        ),
        (replace(BEFORE, phase=Phase.STOPPING, cause="SIGTERM"), ("info", "stopping")),
        (replace(BEFORE, phase=Phase.STOPPED, cause="done"), ("info", "stopped")),
    ],
)
def test_a_change_has_one_line(after: Snapshot, line: tuple[str, str]) -> None:
    """Each change of state that an operator wants to know is one line."""
    assert [line] == events(BEFORE, after)


def test_a_blocked_partition_is_logged_with_place_and_cure() -> None:
    """The line holds topic, partition, offset, the cause and the cure."""
    found = fields(BEFORE, BLOCKED)

    assert {"topic": "raw", "partition": 3, "error": f"{LOST}"} == found
    assert "raw-3@1: offsets 1 to 4 were deleted: reset the offset" == str(LOST)


def test_another_reason_is_logged_again() -> None:
    """A partition that is blocked for another reason than before is logged again."""
    other = replace(STATUS, state=PartitionState.BLOCKED, problem=replace(LOST, cause="its topic is gone"))

    assert [("error", "partition_blocked")] == events(BLOCKED, replace(BEFORE, partitions={P: other}))


def test_the_end_of_a_block_and_of_an_outage_is_logged() -> None:
    """An operator who was alerted reads in the log that it is over."""
    assert [("info", "partition_unblocked")] == events(BLOCKED, BEFORE)
    assert [("info", "kafka_available")] == events(OUTAGE, BEFORE)


def test_an_outage_between_rounds_is_waited_for() -> None:
    """No task runs between rounds, so the service waits, and logs how long it has waited."""
    before, away = replace(BEFORE, round=None), replace(OUTAGE, round=None)

    assert [("warning", "kafka_unavailable")] == events(before, away)
    assert [("info", "kafka_available")] == events(away, before)
    assert {"waited_seconds": 40.0} == fields(away, before)


@pytest.mark.parametrize(
    ("before", "after", "reminded"), [(110, 119, False), (119, 120, True), (121, 179, False), (119, 300, True)]
)
def test_an_outage_is_logged_again_each_minute(before: int, after: int, reminded: bool) -> None:
    """Each minute the log says how long and for what the service waits, with the latest reason."""
    first = replace(OUTAGE, at=before)
    later = replace(OUTAGE, at=after, outage=Problem("the password is wrong", "correct it", 60))

    found = [(event.key, fields) for event, fields in log.lines(first, later)]

    line = {"waited_seconds": float(after - 60), "reason": "the password is wrong: correct it"}
    assert [("kafka_unavailable", line)] * reminded == found


def test_a_partition_that_cannot_be_read_while_its_task_runs() -> None:
    """The log says when a running partition's broker is unavailable, and when it is back."""
    unreadable = with_partition(problem=Problem.of(Leaderless(P), 90))

    assert [("warning", "partition_waiting")] == events(BEFORE, unreadable)
    assert [] == events(unreadable, replace(unreadable, at=110))
    assert [("info", "partition_wait_over")] == events(unreadable, BEFORE)


def test_an_excess_is_told_each_minute_until_it_is_over() -> None:
    """The line names the filter."""
    over = replace(BEFORE, excesses={"f": Problem("too much", "look", 100, warns=True)})

    assert {"filter": "f", "reason": "too much: look"} == fields(BEFORE, over)
    assert [] == events(over, replace(over, at=159))
    assert [("warning", "filter_over_limit")] == events(over, replace(over, at=160))
    assert [("info", "filter_within_limit")] == events(over, BEFORE)


def test_the_log_counts_what_filters_drop() -> None:
    """Only a service with filters has the field."""
    counts = Counts(20, 10, filtered={"f": 7, "g": 3})
    after = replace(BEFORE, progress=Advance(counts, 10.0))

    assert 10 == fields(BEFORE, after)["filtered"]
    assert "filtered" not in fields(BEFORE, replace(BEFORE, progress=Advance(Counts(20, 20), 10.0)))


def test_another_service_is_told_each_minute() -> None:
    """It is logged once when it appears, then each minute while it works; the line names it and the cure."""
    rival = replace(BEFORE, rival=Problem("the service on there works for the same group", "stop it", 100))
    line = ("warning", "rival")

    assert [line] == events(BEFORE, rival)
    assert [] == events(rival, replace(rival, at=159))
    assert [line] == events(replace(rival, at=159), replace(rival, at=161))
    assert {"rival": "the service on there works for the same group: stop it"} == fields(BEFORE, rival)
    assert [] == events(rival, BEFORE)
    event = "standing_by"
    assert [("warning", event)] == events(replace(BEFORE, phase=Phase.STARTING), replace(rival, phase=Phase.STARTING))


def test_a_fence_that_the_driver_did_not_cause_is_told_once() -> None:
    """The line has the number of lost partitions, some of their names, and their new owners."""
    other = Owner(0, "there", "clean")
    fenced = replace(BEFORE, fenced={Partition("raw", n): other if n else NOBODY for n in range(7)})

    assert {
        "count": 7,
        "partitions": ["raw-0", "raw-1", "raw-2", "raw-3", "raw-4"],
        "offsets_committed_by": [str(other)],
    } == fields(BEFORE, fenced)
    assert [] == events(fenced, replace(fenced, at=110))


def test_a_take_over_is_told_step_by_step() -> None:
    """Each step names the new owner and the progress; standing by and working again are logged, too."""
    raw = [Partition("raw", number) for number in range(2)]
    later = Owner(0, "there", "clean", 3)
    none = replace(BEFORE, round=RoundStatus(1, 0, 2, 2, 2, 0))
    one, both = replace(none, taken={raw[0]: later}), replace(none, taken=dict.fromkeys(raw, later))
    line = ("info", "taken_over")

    assert [line] == events(none, one) == events(one, both)
    assert [] == events(one, replace(one, at=159))
    assert {"by": str(later), "taken": 1, "partitions": len(BEFORE.partitions)} == fields(none, one)
    assert [("warning", "takeover_abandoned")] == events(one, none)
    assert ["standing_by"] == [event for _, event in events(BEFORE, replace(one, round=None, phase=Phase.STARTING))]


def test_standing_by_behind_a_later_generation_is_told_each_minute() -> None:
    """The minutes count from when the start began to wait. Whoever works is told of each step only."""
    stands_by = replace(
        BEFORE, phase=Phase.STARTING, step_since=100, round=None, taken={P: Owner(0, "there", "clean", 3)}
    )
    line = ("warning", "standing_by")

    assert [] == events(stands_by, replace(stands_by, at=159))
    assert [line] == events(replace(stands_by, at=159), replace(stands_by, at=161))
    assert [] == events(replace(stands_by, at=161), replace(stands_by, at=219))
    works = replace(stands_by, phase=Phase.RUNNING)
    assert [] == events(works, replace(works, at=161))


def test_a_hanging_transaction_is_told_after_a_minute_and_each_minute() -> None:
    """The line has its age, the waiting records, and the tool that ends it. Where nobody looks, nothing is known."""

    def looked(at: float) -> Snapshot:
        found = with_partition(unstable_since=100.0, last_stable=20, high_watermark=50, points=(Point(at, 20, 20, 0),))
        return replace(found, at=at)

    line = ("warning", "open_transaction")

    assert [] == events(BEFORE, looked(100))
    assert [] == events(looked(100), looked(159))
    assert [line] == events(looked(159), looked(161))
    assert [] == events(looked(161), looked(170))
    assert [line] == events(looked(170), looked(221))
    found = fields(looked(159), looked(161))
    assert (61.0, 20, 30, "raw", 3) == tuple(
        found[key] for key in ("seconds", "offset", "waiting", "topic", "partition")
    )
    assert "abort --topic raw --partition 3 --start-offset 20" in str(found["cure"])
    assert [] == events(looked(161), replace(looked(161), at=221))


def test_progress_is_a_line_for_each_refresh() -> None:
    """
    Progress is logged even if the numbers are the same, because silence would suggest that the service hangs.

    The lag is that of all partitions, including blocked ones.
    """
    first, second = (replace(BLOCKED, progress=Advance(Counts(50, 48, {"empty": 2}), 10.0)) for _ in range(2))

    assert {"records": 50, "dead": 2, "lag": 7, "seconds": 10.0, "per_second": 5} == fields(BLOCKED, first)
    assert [("info", "progress")] == events(first, second)


def test_a_round_that_was_killed_or_lost_reports_nothing() -> None:
    """A killed round has no receipts and no line; its commits still count."""
    killed = with_round(killed=True, ending=Ending.STARVED)

    assert [] == events(killed, replace(BEFORE, round=replace(killed.round or ROUND, seconds=3.0)))
    assert ["error"] == [level for level, _ in events(BEFORE, with_round(ending=Ending.LOST, reason="x", seconds=3.0))]


def test_the_lines_are_written() -> None:
    """The tracker's listener writes the lines with structlog, and with the number of the round."""
    after = with_round(ending=Ending.REBALANCE, reason="partitions were added or removed")
    assert after.round is not None
    with capture_logs() as written:
        log.write(BEFORE, after)

    fields = {"round": after.round.number, "reason": "partitions were added or removed"}
    assert [{"log_level": "info", "event": "rebalance", "message": Event.REBALANCE.message, **fields}] == written


def test_a_pause_is_said_again_each_minute() -> None:
    """The end is logged, too, with the duration; without a pause nothing is logged."""
    pause = Pause(100_000, "ops-1")
    paused, later = replace(BEFORE, paused=pause), replace(BEFORE, at=161, paused=pause)

    assert [("warning", "paused")] == events(BEFORE, paused)
    assert {
        "reason": "paused since 1970-01-01T00:01:40+00:00, from ops-1; to resume, run winnow resume -c winnow.yaml"
    } == fields(BEFORE, paused)
    assert [] == events(paused, replace(paused, at=159))
    assert [("warning", "paused")] == events(paused, later)
    assert {"paused_seconds": 61.0} == fields(later, replace(later, paused=None))


def test_a_service_says_that_it_has_started() -> None:
    """It includes what an operator asks first: the version, and the topics."""
    build = Build("1.2.3", "3.11.9", "4.3.0", "2.16.0", "bulk")
    after = replace(BEFORE, about=About(build, 2, "exactly-once", ("raw",), "clean", "dead"))

    assert [("info", "started")] == events(BEFORE, after)
    assert {
        "version": "1.2.3",
        "python": "3.11.9",
        "pyspark": "4.3.0",
        "librdkafka": "2.16.0",
        "engine": "bulk",
        "generation": 2,
        "guarantee": "exactly-once",
        "sources": ("raw",),
        "sink": "clean",
        "dead_letters": "dead",
    } == fields(BEFORE, after)


@pytest.mark.parametrize(
    ("lasts", "line"),
    [
        (BLOCKED, ("error", "partition_blocked")),
        (with_partition(problem=LOST), ("warning", "partition_waiting")),
    ],
)
def test_a_partition_that_does_not_go_on_is_told_again_each_minute(lasts: Snapshot, line: tuple[str, str]) -> None:
    """It has the error and its age; a failed partition is retried by the next round instead."""
    assert [line] == events(lasts, replace(lasts, at=151)) == events(replace(lasts, at=209), replace(lasts, at=211))
    assert [] == events(replace(lasts, at=151), replace(lasts, at=209))
    assert {"waited_seconds": 61.0, "error": str(LOST), "topic": "raw", "partition": 3} == fields(
        lasts, replace(lasts, at=151)
    )
    assert [] == events(FAILED, replace(FAILED, at=500))


def test_a_partition_that_stalls_is_told_each_minute() -> None:
    """As on the page and in the alert; nothing is logged while its offset moves or nothing waits."""
    points = tuple(Point(20.0 + 5 * number, 50, 10, 0) for number in range(25))
    stalled = with_partition(lag=40, moved=20.0, points=points)
    moving = with_partition(lag=40, moved=20.0, points=(*points, Point(145, 50, 11, 0)))
    later = replace(stalled, at=141)

    assert [] == events(stalled, replace(stalled, at=139)) == events(moving, replace(moving, at=141))
    assert [("warning", "partition_stalled")] == events(stalled, later)
    assert (121.0, 40, 10) == tuple(fields(stalled, later)[key] for key in ("seconds", "lag", "offset"))
    away = Problem("Kafka is not responding", "", 120.0)
    assert [] == events(replace(stalled, outage=away), replace(later, outage=away))  # nobody sees whether it moves
