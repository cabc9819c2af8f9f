"""The simulation itself: schedules repeat, failing ones shrink and are told, and each control arm is found."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import pytest

from app.model import Guarantee
from tests.simulation.arms import ARMS
from tests.simulation.branches import missed, places
from tests.simulation.events import Event, What
from tests.simulation.history import Line
from tests.simulation.runs import Plan, shrunk, told
from tests.simulation.schedule import Setting
from tests.simulation.shares import run_module
from tests.simulation.world import installed

ENOUGH = 1_500
"""Within how many schedules each arm must be found."""
FIRST = 4
"""How many schedules of each kind of event must have one in which it changes anything."""


class Harm(NamedTuple):
    """What shows what is wrong with an arm, and the anomalies."""

    arm: str
    setting: Setting
    moves: Sequence[Event]
    found: Collection[str]


HARMS = {
    # Seed 115 of the first version of the simulation, when it had not been mended; one schedule in 3,000 shows it.
    "a log is cut, a new driver goes back, the log grows, and the task is killed": Harm(
        "rewound-again",
        Setting(1, out_of_range="nearest"),
        (
            Event(1.5, What.TRUNCATION, which=2),
            Event(1.6, What.KILL_DRIVER, seconds=0.1),
            Event(3.0, What.WRITE, which=0, detail="3"),
            Event(4.2, What.KILL_TASK),
        ),
        {"duplicated"},
    ),
    # One in 900 shows it.
    "lines wait for a leader when the task is killed": Harm(
        "offset-early",
        Setting(1, guarantees=(Guarantee.AT_LEAST_ONCE,)),
        (
            Event(2.0, What.SINK_LEADERLESS, seconds=4.0),
            Event(2.2, What.WRITE, detail="3"),
            Event(3.2, What.KILL_TASK),
        ),
        {"lost", "stuck"},
    ),
    "commits arrive a second late, when the next transaction is open": Harm(
        "kept-producer",
        Setting(1, round_interval=10),
        (
            *(Event(2.1 + 1.2 * number, What.FAULT, seconds=1.0, detail="EndTxn/request late") for number in range(8)),
            *(Event(1.5 + 0.3 * number, What.WRITE, which=number, detail="1") for number in range(35)),
        ),
        {"torn transaction", "duplicated"},
    ),
    "a log is cut below the group's offset": Harm(
        "cuts-ignored",
        Setting(2, round_interval=2, out_of_range="nearest"),
        (Event(1.9, What.TRUNCATION, which=5), Event(2.6, What.WRITE, which=1, detail="1")),
        {"lost", "stuck"},
    ),
    # All below are faults that 0.2.0 had.
    "a partition is added while the others have no leader": Harm(
        "leaderless-forgotten",
        Setting(1, starting="latest"),
        (
            Event(2.0, What.KILL_DRIVER, seconds=2.5),
            Event(3.0, What.ADD_SOURCE),
            Event(3.5, What.SOURCE_LEADERLESS, which=0, seconds=3.0),
            Event(3.5, What.SOURCE_LEADERLESS, which=1, seconds=3.0),
        ),
        {"lost", "stuck"},
    ),
    "offsets are left behind while a partition has no leader": Harm(
        "leaderless-forgotten",
        Setting(1, round_interval=2, two_clusters=True),
        (
            Event(2.0, What.KILL_DRIVER, seconds=3.1),
            Event(5.0, What.PLACEHOLDERS_LOST),
            Event(5.05, What.SOURCE_LEADERLESS, seconds=1.0),
            Event(7.0, What.WRITE, which=0, detail="1"),
            Event(7.0, What.WRITE, which=1, detail="1"),
        ),
        {"offset moved back", "duplicated"},
    ),
    "a partition is added after a restoration": Harm(
        "restored-bare",
        Setting(1, starting="latest"),
        (
            Event(2.0, What.KILL_DRIVER, seconds=5.0),
            Event(2.5, What.RESTORE, seconds=0.5),
            Event(6.4, What.ADD_SOURCE),
        ),
        {"lost", "stuck"},
    ),
    "an outage begins soon after a service has begun to stand by, and the tasks take long to work again": Harm(
        "outage-is-silence",
        Setting(1),
        (
            Event(5.2, What.STANDS_BY),
            Event(6.0, What.LONG_OUTAGE, seconds=1.0),
            Event(72.0, What.FREEZE_TASK, seconds=10.0),
        ),
        {"displaced"},
    ),
    "a backfill starts beside the service": Harm(
        "works-beside", Setting(1), (Event(6.0, What.UNTIL_END),), {"displaced"}
    ),
    "a task is killed while a later generation takes over": Harm(
        "takes-back", Setting(2), (Event(2.0, What.NEW_GENERATION), Event(3.0, What.KILL_TASK)), {"taken back"}
    ),
    "the dead-letter topic is created again while the service is paused": Harm(
        "pause-with-dead-letters",
        Setting(1),
        (
            Event(1.5, What.PAUSE, seconds=12.0),
            Event(3.0, What.MARK_LOST),
            Event(3.1, What.KILL_DRIVER, seconds=1.0),
        ),
        {"went on"},
    ),
    "a dead letter has a forged header, and its partition no leader": Harm(
        "headers-trusted",
        Setting(1),
        (
            Event(1.0, What.WRITE_FORGED),
            Event(1.3, What.SLOW_MARKERS, seconds=2.0),
            Event(1.4, What.SINK_LEADERLESS, which=2, seconds=2.0),
            *(Event(1.4 + 0.1 * number, What.WRITE, detail="2") for number in range(6)),
            Event(1.9, What.KILL_TASK),
        ),
        {"lost", "stuck"},
    ),
    "brokers date the dead letters, and each record has two": Harm(
        "replays-by-time",
        Setting(1, round_interval=2, append_time=True),
        (Event(1.0, What.RESET, which=5), Event(7.9, What.REPLAY, seconds=12.0)),
        {"duplicated"},
    ),
}


@pytest.mark.parametrize("arm", sorted(ARMS.keys() - {"honest"} - {each.arm for each in HARMS.values()}))
def test_each_control_arm_is_found(arm: str) -> None:
    """A simulation that cannot see what is wrong proves nothing."""
    code, said = run_module("--arm", arm, "--schedules", str(ENOUGH), "--jobs", "1", "--until-found", "--told", "0")

    assert 1 == code, said
    (name,) = re.findall(r"^seed \d+: ([^:]+):", said, re.MULTILINE)
    assert name not in {"crashed", "stuck"}, "what the arm replaces may no longer fit"


@pytest.mark.parametrize("broken", [True, False], ids=["broken", "honest"])
@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_each_rare_control_arm_is_found(harm: Harm, *, broken: bool) -> None:
    """Few seeds find these, so their events are given."""
    moves = sorted(harm.moves, key=lambda event: event.at)
    with installed(), ARMS[harm.arm if broken else "honest"]():
        results = [Plan(seed, harm.setting, moves).run() for seed in range(3)]

    assert (harm.found if broken else set()) == {anomaly.name for result in results for anomaly in result.anomalies}


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


class Idle(Event):
    """An event in whose place nothing happens."""

    __slots__ = ()

    def happen(self, sim: object) -> None:
        """Do nothing."""


@pytest.mark.parametrize("kind", What)
def test_every_kind_of_event_changes_something(kind: What) -> None:
    """In one of its first schedules, at least: what happens for nobody proves nothing."""
    plans = (Plan.of(seed) for seed in range(1_000))
    first = islice((plan for plan in plans if any(event.kind is kind for event in plan.events)), FIRST)

    with installed():
        assert any(_happened(plan) != _happened(_idle(plan, kind)) for plan in first)


def _idle(plan: Plan, kind: What) -> Plan:
    return replace(plan, events=[Idle(each.at, each.kind) if each.kind is kind else each for each in plan.events])


def _happened(plan: Plan) -> list[Line]:
    return [line for line in plan.run(kept=True).history.lines if line.actor != "nemesis"]


def test_branches_are_found_in_the_sources() -> None:
    """Each is a line with `raise`, or the first one of a handler."""
    every = places()

    assert len(every) > 150
    assert any(file == "app/kafka/writers.py" and text.startswith("raise") for (file, _), text in every.items())
    assert f"{len(every)} of {len(every)} error branches reached" == missed(set(every))
