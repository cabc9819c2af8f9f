"""The simulation itself: schedules repeat, failing ones shrink and are told, and each control arm is found."""

from __future__ import annotations

import pytest

from app.model import Guarantee
from tests.simulation.arms import ARMS
from tests.simulation.branches import missed, places
from tests.simulation.events import Event, What
from tests.simulation.runs import Plan, shrunk, told
from tests.simulation.schedule import Setting
from tests.simulation.shares import run_module
from tests.simulation.world import installed

ENOUGH = 1_500
"""Within how many schedules each arm must be found."""


@pytest.mark.parametrize("arm", sorted(ARMS.keys() - {"honest", "rewound-again", "offset-early"}))
def test_each_control_arm_is_found(arm: str) -> None:
    """A simulation that cannot see what is wrong proves nothing."""
    code, said = run_module("--arm", arm, "--schedules", str(ENOUGH), "--jobs", "1", "--until-found", "--told", "0")

    assert 1 == code, said
    assert "1 anomalies" in said


REWOUND = (
    Event(1.5, What.TRUNCATION, which=2),
    Event(1.6, What.KILL_DRIVER, seconds=0.1),
    Event(3.0, What.WRITE, which=0, detail="3"),
    Event(4.2, What.KILL_TASK),
)
"""A log is cut by three records, a new driver goes back by them, three others follow, and the task is killed."""


@pytest.mark.parametrize(("arm", "found"), [("rewound-again", {"duplicated"}), ("honest", set())])
def test_a_retried_task_goes_back_once(arm: str, found: set[str]) -> None:
    """Found by seed 115 of the first version of the simulation, when it had not been mended; one in 3,000 shows it."""
    with installed(), ARMS[arm]():
        results = [Plan(seed, Setting(1, out_of_range="nearest"), REWOUND).run() for seed in range(3)]

    assert found == {anomaly.name for result in results for anomaly in result.anomalies}


@pytest.mark.parametrize(("arm", "found"), [("offset-early", {"lost", "stuck"}), ("honest", set())])
def test_an_offset_that_is_saved_early_is_found(arm: str, found: set[str]) -> None:
    """The lines wait for a leader when the task is killed. One schedule in 900 shows it."""
    moves = [
        Event(2.0, What.SINK_LEADERLESS, seconds=4.0),
        Event(2.2, What.WRITE, detail="3"),
        Event(3.2, What.KILL_TASK),
    ]
    with installed(), ARMS[arm]():
        results = [Plan(seed, Setting(1, guarantees=(Guarantee.AT_LEAST_ONCE,)), moves).run() for seed in range(3)]

    assert found == {anomaly.name for result in results for anomaly in result.anomalies}


def test_a_cut_log_whose_start_is_the_committed_offset_is_read_on() -> None:
    """
    A log is cut and grows past the committed offset, and retention deletes what is before that offset (seed 102583).

    With `out.of.range: nearest` the driver goes on at the log's start, which is the committed offset.
    """
    cut = Event(2.000, What.TRUNCATION, which=2)
    moves = [cut, Event(2.001, What.WRITE, which=0, detail="6"), Event(2.002, What.RETENTION, which=0)]

    with installed():
        results = [Plan(seed, Setting(1, 2, "nearest"), moves).run() for seed in range(2)]

    assert not any(result.anomalies for result in results)


CUT = {
    "before a new driver looks": (
        Event(2.00, What.KILL_DRIVER, seconds=1.0),
        Event(2.05, What.KILL_TASK),
        Event(2.1, What.TRUNCATION, which=2),
        Event(2.2, What.WRITE, detail="1"),
    ),
    "again, after a task has found a cut": (
        Event(2.5, What.TRUNCATION, which=2),
        Event(4.0, What.TRUNCATION, which=2),
        Event(4.8, What.WRITE, detail="1"),
    ),
    "again, before a task goes on at the cut": (
        Event(2.0, What.TRUNCATION, which=2),
        Event(2.0, What.KILL_DRIVER, seconds=0.1),
        Event(2.6, What.TRUNCATION, which=2),
        Event(2.65, What.WRITE, detail="6"),
    ),
}


@pytest.mark.parametrize("moves", CUT.values(), ids=CUT)
def test_a_log_is_read_on_from_where_it_was_cut(moves: tuple[Event, ...]) -> None:
    """It has grown again. The leader epoch of the last record read tells where it was cut (the second: seed 1500663)."""
    with installed():
        results = [Plan(seed, Setting(1, out_of_range="nearest"), moves).run() for seed in range(3)]

    assert not any(result.anomalies for result in results)


RESTART = Event(2.0, What.KILL_DRIVER, seconds=0.1)
ENDED_ALONE = {
    "its offset is moved back between plan and open": (RESTART, Event(2.3, What.MOVED_BACK)),
    "its log is cut and grows to the committed offset": (
        Event(2.000, What.TRUNCATION),
        Event(2.001, What.WRITE, detail="1"),
    ),
}


@pytest.mark.parametrize("moves", ENDED_ALONE.values(), ids=ENDED_ALONE)
def test_a_partition_whose_lane_has_ended_does_not_wait_for_the_rounds_end(moves: tuple[Event, ...]) -> None:
    """Nothing is waiting in it, as far as the driver sees. The round would last ten minutes of the simulated time."""
    with installed():
        results = [Plan(seed, Setting(1, out_of_range="nearest"), moves).run() for seed in range(3)]

    assert not any(result.anomalies for result in results)
    assert all(result.seconds < 100 for result in results)


def test_the_offsets_of_a_paused_service_do_not_expire() -> None:
    """The brokers keep offsets and pauses for a minute after their last commit, and the pause is longer."""
    pause = Event(2.0, What.PAUSE, seconds=150.0)
    after = [Event(155.0, What.WRITE, which=partition, detail="2") for partition in range(2)]
    setting = Setting(1, round_interval=2, offsets_minutes=1)

    with installed():
        results = [Plan(seed, setting, [pause, *after]).run(kept=True) for seed in range(2)]

    for result in results:
        assert not result.anomalies
        tasks = {line.at for line in result.history.lines if ".w" in line.actor and line.what == "EndTxn"}
        assert not any(10.0 < at < 150.0 for at in tasks)


@pytest.mark.parametrize("seed", [3, 54])
def test_a_schedule_repeats(seed: int) -> None:
    """The same seed gives the same history."""
    with installed():
        first, second = (Plan.of(seed).run(kept=True) for _ in range(2))

    assert list(first.history.told()) == list(second.history.told())
    assert first.steps == second.steps
    assert not first.anomalies


def test_a_failing_schedule_is_shrunk_and_told() -> None:
    """What is left still fails, and a person can read who did what, and when."""
    plan = Plan.of(25)
    with installed(), ARMS["offset-outside"]():
        name = plan.run().anomalies[0].name

    smaller = shrunk(plan, name, "offset-outside")

    assert [] == list(smaller.events)
    text = told(smaller, "offset-outside")
    assert "s1                           starts" in text
    assert "EndTxn                 ok" in text
    assert name in text


def test_every_kind_of_event_is_drawn() -> None:
    """Within a thousand schedules."""
    drawn = {event.kind for seed in range(1_000) for event in Plan.of(seed).events}

    assert set(What) == drawn


def test_branches_are_found_in_the_sources() -> None:
    """Each is a line with `raise`, or the first one of a handler."""
    every = places()

    assert len(every) > 150
    assert any(file == "app/kafka/writers.py" and text.startswith("raise") for (file, _), text in every.items())
    assert f"{len(every)} of {len(every)} error branches reached" == missed(set(every))
