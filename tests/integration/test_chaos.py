"""A short, seeded run of the fault harness: only a deliberately broken service has anomalies (all: `make controls`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.chaos import zombies
from tests.chaos.checker import judge
from tests.chaos.cluster import SMALL
from tests.chaos.controls import CONTROL_PLANS
from tests.chaos.failpoints import POINTS
from tests.chaos.grouped import NOBODY, History
from tests.chaos.history import events
from tests.chaos.run import Plan, run
from tests.chaos.work import HONEST

SEED = 1


def found(path: Path) -> tuple[History, dict[str, int]]:
    history = History.of(events(path))
    return history, {finding.name: finding.times for finding in judge(history) if finding.times}


def test_no_anomaly(tmp_path: Path) -> None:
    """A worker dies before its commit, a task is attempted twice, EndTxn requests are late: there is no anomaly."""
    faults = ("killed before-commit", "duplicate attempt", "EndTxn held")

    path = run(Plan(SEED, 3600, SMALL, faults, per_second=400, pause=(1.0, 2.0)), tmp_path)
    history, anomalies = found(path)

    assert {} == anomalies
    assert list(faults) == [fault.name for fault in history.faults]
    assert NOBODY not in {fault.target for fault in history.faults}
    assert not history.missed.total()
    assert [event for event in events(path) if event["kind"] == "held"]
    assert {"first", "second", "final"} == set(history.readers)


def test_no_zombie_is_seen(tmp_path: Path) -> None:
    """Readers see no record of a worker that is suspended at any point and resumed after its successor has finished."""
    history, anomalies = found(zombies.run(1, SEED, HONEST, tmp_path))

    assert {} == anomalies
    assert {f"zombie {point}" for point in POINTS} == {fault.name for fault in history.faults}
    assert len(POINTS) == len(history.successors)


def test_a_control_arm_is_found_out(tmp_path: Path) -> None:
    """The checker finds the expected anomaly in a deliberately broken service."""
    control = CONTROL_PLANS["dead-letters-outside"]
    plan = replace(control.plan(SEED), size=replace(SMALL, forked=True))  # its arm is in the tasks, not in Spark

    _, anomalies = found(run(plan, tmp_path))

    assert control.anomaly in anomalies
