"""
What the simulation has found. The product does not prevent the expected failures yet.

All need a partition without a leader in the middle of a commit, whose marker Kafka 4 then drops. `known gaps` of a
report count such transactions.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.simulation import events
from tests.simulation.events import Event, What
from tests.simulation.runs import Plan
from tests.simulation.schedule import Result, Setting
from tests.simulation.world import installed


class NotPreventedYet(Exception):
    """The expected failure. Any other is a fault of the model or of the test."""


def results(setting: Setting, *events: Event, seeds: int) -> Sequence[Result]:
    """Run these events in this many orders."""
    plan = sorted(events, key=lambda event: event.at)
    with installed():
        return [Plan(seed, setting, plan).run() for seed in range(seeds)]


def lines(first: float, every: float, partitions: int = 2) -> Sequence[Event]:
    """Return the events of an agent that writes two lines again and again."""
    return [Event(first + every * n, What.WRITE, which=n % partitions, detail="2") for n in range(12)]


@pytest.mark.xfail(
    strict=True,
    raises=NotPreventedYet,
    reason="a fenced producer's offset joins the transaction that hangs in the group's partition",
)
def test_an_offset_of_a_fenced_producer_is_not_committed() -> None:
    """
    The end of a committed transaction does not reach the group's offsets, because their partition has no leader.

    The lane's next transaction waits in `send_offsets_to_transaction` until there is one again. Meanwhile the driver has
    fenced the lane. The coordinator of the group accepts the late offset all the same: a transaction of that producer
    and epoch hangs there, so it does not ask whether it is still open. What ends the hanging transaction as committed
    commits this offset, too. Its lines were aborted, so they are lost.
    """
    moves = Event(4.56, What.GROUP_LEADERLESS, seconds=5.0), Event(5.06, What.PAUSE, seconds=2.5)

    found = results(Setting(2, round_interval=2), *lines(3.0, 0.25), *moves, seeds=40)

    if any(result.lost_in_gaps for result in found):
        raise NotPreventedYet


@pytest.mark.xfail(
    strict=True,
    raises=NotPreventedYet,
    reason="a fenced producer's batch joins the transaction that hangs in the sink's partition",
)
def test_a_batch_of_a_fenced_producer_stays_unread() -> None:
    """
    The end of a committed transaction does not reach the sink's partition, because it has no leader.

    A batch of the lane's next transaction waits there, too, while a later owner fences the lane. The new leader accepts
    the batch: no marker has told it the new epoch, and because a transaction of that producer and epoch hangs there, it
    does not ask the coordinator. The later owner does not touch a committed transaction that hangs. Its own
    next commit makes both readable, and it has written the same lines again.
    """
    moves = Event(1.2, What.SLOW_MARKERS, seconds=0.9), Event(1.5, What.SINK_LEADERLESS, seconds=0.9)

    found = results(
        Setting(1, round_interval=2), *lines(0.8, 0.2, 1), *moves, Event(1.6, What.NEW_GENERATION), seeds=80
    )

    if any(result.doubled_in_gaps for result in found):
        raise NotPreventedYet


def test_a_first_offset_that_is_pending_has_not_vanished() -> None:
    """
    The group's very first offsets are pending for want of a leader when their tasks end.

    The driver knows the offsets from the receipts only. The next tasks end the transactions, or go on at those offsets if
    Kafka has lost them.
    """
    moves = Event(0.2, What.SLOW_MARKERS, seconds=1.0), Event(0.35, What.GROUP_LEADERLESS, seconds=2.6)

    found = results(Setting(1, hurried=True), *lines(0.5, 0.3), *moves, seeds=150)

    assert not any(result.anomalies for result in found)
    assert not any("vanished" in problem for result in found for problem in result.problems)


@pytest.mark.parametrize("looks", [True, False], ids=["a person aborts it", "nobody does"])
def test_what_a_replay_leaves_open_waits_for_a_person(monkeypatch: pytest.MonkeyPatch, *, looks: bool) -> None:
    """
    The end of a replay's committed transaction does not reach a partition of the sink, because it has no leader.

    The replay ends, so no transaction of its producer follows there. Readers wait, and miss what comes after it, until a
    person aborts what hangs, as the runbook says. The replayed lines are lost (seed 2065120).
    """
    if not looks:
        monkeypatch.setattr(events, "abort_left_by_replays", lambda _: None)
    moves = (
        Event(3.5, What.REPLAY, seconds=0.3),
        Event(3.5, What.SLOW_MARKERS, seconds=0.6),
        Event(3.9, What.SINK_LEADERLESS, which=1, seconds=2.0),
    )

    found = results(Setting(1), *lines(0.5, 0.2), *moves, seeds=20)

    assert looks == any(result.gaps for result in found)
    assert (set() if looks else {"lost", "stuck"}) == {each.name for result in found for each in result.anomalies}


def test_of_several_runs_that_start_at_once_one_works() -> None:
    """
    Each is fenced by the next one before it commits, so it must wait until that one has committed its name.

    The last commit names a run that has long been fenced, too (seed 410405).
    """
    starts = [Event(at, What.SERVICE_STARTS, which=n) for n, at in enumerate((3.5, 4.5, 4.9, 5.5, 5.8, 6.4))]
    written = [
        Event(at, What.WRITE, which=which, detail="2") for at, which in ((2.1, 0), (3.6, 1), (4.6, 1), (4.63, 1))
    ]

    found = results(Setting(2, round_interval=5, append_time=True), *starts, *written, seeds=2)

    assert not any(result.anomalies for result in found)


def test_a_partition_that_is_added_before_the_copies_are_carried_over_is_read_from_its_beginning() -> None:
    """
    The sink's cluster forgets the group's offsets, and the source gets a partition, while the service is away.

    It starts again before a person has carried over the copies, the only trace of what the group had begun (seed 2074089).
    """
    moves = (
        Event(0.86, What.SERVICE_STOPS, which=1, seconds=7.2),
        Event(4.842, What.PLACEHOLDERS_LOST, seconds=0.2),
        Event(5.339, What.ADD_SOURCE, which=2, seconds=3.4),
    )

    found = results(Setting(1, round_interval=5, two_clusters=True, starting="latest"), *moves, seeds=10)

    assert not any(result.anomalies for result in found)
