"""The condition of a partition, without thresholds, for flows that an operator would recognize."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from app.model import Partition
from app.status.condition import Condition, judge, records_per_second
from app.status.snapshot import PartitionState, PartitionStatus, Phase, Problem, Snapshot
from app.status.window import (
    DAY_MOMENT_SECONDS,
    DAY_SECONDS,
    HOUR_SECONDS,
    WINDOW_SECONDS,
    Moment,
    Point,
    with_moment,
    with_point,
)

P = Partition("raw", 0)
WORKING = Snapshot(at=1_300.0, group="idc", started=1_000.0, phase=Phase.RUNNING)
AWAY = replace(WORKING, outage=Problem("Kafka is not responding while reading offsets: timed out", "", 1_200.0))
STARTING = replace(WORKING, phase=Phase.STARTING)


def seen(
    end: Callable[[float], float], done: Callable[[float], float], *, seconds: float = 300, every: float = 10
) -> PartitionStatus:
    """Return a partition that was looked at for this long; both functions map seconds to offsets."""
    points: tuple[Point, ...] = ()
    for step in range(int(seconds / every) + 1):
        at = step * every
        points = with_point(points, Point(1_000 + at, int(end(at)), int(done(at)), int(done(at))))
    return PartitionStatus(P, PartitionState.RUNNING, 0, points=points)


Flow = tuple[Callable[[float], float], Callable[[float], float], Condition]
FLOWS: dict[str, Flow] = {
    "idle": (lambda _: 500, lambda _: 500, Condition.OK),
    "always less than a look behind": (lambda t: 1_000 * t, lambda t: max(0, 1_000 * t - 800), Condition.OK),
    "commits once a minute": (lambda t: 5 * t, lambda t: 5 * (t // 60 * 60), Condition.OK),
    "a rebalance just now": (lambda t: 1_000 * t, lambda t: min(1_000 * t, 250_000), Condition.OK),
    "faster than what comes": (lambda t: 1_000_000 + 10 * t, lambda t: 1_000 * t, Condition.CATCHING_UP),
    "a gap that closes by a record in two seconds": (lambda t: 1_000 + 2 * t, lambda t: 2.5 * t, Condition.CATCHING_UP),
    "slower than what comes": (lambda t: 1_000 * t, lambda t: 10 * t, Condition.FALLING_BEHIND),
    "a gap that does not close": (lambda t: 100_000 + 10 * t, lambda t: 10 * t, Condition.FALLING_BEHIND),
    "nothing moves": (lambda t: 1_000 * t, lambda _: 7, Condition.STALLED),
    "one record is enough": (lambda _: 8, lambda _: 7, Condition.STALLED),
}


@pytest.mark.parametrize(("end", "done", "word"), FLOWS.values(), ids=FLOWS)
def test_the_word_for_a_flow(end: Callable[[float], float], done: Callable[[float], float], word: Condition) -> None:
    """After five minutes of such a flow, the partition has this condition, however often it is looked at."""
    often = (5, 10, 30, 40, 44, 60, 75, 90, 120)

    assert {word} == {judge(seen(end, done, every=every), WORKING).condition for every in often}


def test_rare_looks_make_the_word_later_but_not_another() -> None:
    """`round.interval` may be an hour. Two looks say what is wrong, and how fast it goes."""
    standing = seen(lambda t: 1_000 * (t + 1), lambda _: 7, seconds=3_600, every=3_600)
    slow = seen(lambda t: 1_000 * t, lambda t: 10 * t, seconds=7_200, every=3_600)

    assert Condition.STALLED is judge(standing, WORKING).condition
    assert 10 == records_per_second(slow, WORKING)


def test_a_gap_that_closes_has_its_time() -> None:
    """A million behind, at 2,000 a second done and 1,000 new ones: 700,000 are left after five minutes."""
    judgement = judge(seen(lambda t: 1_000_000 + 1_000 * t, lambda t: 2_000 * t), WORKING)

    assert Condition.CATCHING_UP is judgement.condition
    assert 700 == pytest.approx(judgement.seconds_to_close)


def test_a_start_is_not_a_stall() -> None:
    """Until the window is complete, a task without commits may still be opening."""
    flows = [seen(lambda _: 500, lambda _: 0, seconds=s) for s in (0, 10, 60, WINDOW_SECONDS)]
    words = [judge(each, WORKING).condition for each in flows]

    assert [Condition.CATCHING_UP] * 3 + [Condition.STALLED] == words


def test_blocked_is_blocked() -> None:
    """A blocked partition is called that whatever its offsets do; one that was never seen is ok."""
    assert Condition.BLOCKED is judge(PartitionStatus(P, PartitionState.BLOCKED, 0), WORKING).condition
    assert Condition.OK is judge(PartitionStatus(P, PartitionState.PLANNED, 0), WORKING).condition
    assert Condition.PAUSED is judge(PartitionStatus(P, PartitionState.PAUSED, 0), WORKING).condition


def test_what_nobody_sees_is_unknown() -> None:
    """While Kafka does not respond, a partition is neither ok nor stalled; it stays blocked or paused."""
    flowing, standing = seen(lambda _: 500, lambda _: 500), seen(lambda _: 500, lambda _: 0)

    assert {Condition.UNKNOWN} == {judge(each, AWAY).condition for each in (flowing, standing)}
    for state in (PartitionState.BLOCKED, PartitionState.PAUSED):
        assert state.value == judge(replace(flowing, state=state), AWAY).condition


def test_records_wait_for_a_start() -> None:
    """However long a start or a stand-by lasts, what waits for it is not stalled; a partition without lag is ok."""
    standing, idle = replace(seen(lambda _: 500, lambda _: 0), lag=500), seen(lambda _: 500, lambda _: 500)

    assert Condition.WAITING is judge(standing, STARTING).condition
    assert Condition.STALLED is judge(standing, WORKING).condition
    assert Condition.OK is judge(idle, STARTING).condition
    assert Condition.OK is judge(replace(idle, points=idle.points[:1]), WORKING).condition


def test_a_rate_is_that_of_the_window() -> None:
    """Earlier speed does not count, and a count that went back is no rate."""
    status = seen(lambda t: t, lambda t: 100 * t if t < 1_000 else 100_000 + 5 * (t - 1_000), seconds=3_600)

    assert 5 == pytest.approx(records_per_second(status, WORKING) or 0)
    assert 0 == records_per_second(replace(status, points=(Point(0, 0, 0, 9), Point(10, 0, 0, 3))), WORKING)


def test_no_rate_where_none_is_known() -> None:
    """A single look shows no rate, a paused partition has none, and an outage hides it."""
    status = seen(lambda t: t, lambda t: 100 * t)

    assert records_per_second(replace(status, points=status.points[:1]), WORKING) is None
    assert records_per_second(replace(status, points=()), WORKING) is None
    assert records_per_second(replace(status, state=PartitionState.PAUSED), WORKING) is None
    assert records_per_second(status, AWAY) is None


def test_windows_stay_small() -> None:
    """However frequent the points, a window keeps one per five seconds, and an hour one moment per ten."""
    points: tuple[Point, ...] = ()
    moments: tuple[Moment, ...] = ()
    for second in range(5_000):
        points = with_point(points, Point(second, 0, 0, 0))
        moments = with_moment(moments, Moment(second, 0, 0, 0, 0))

    assert (4_999, 4_999) == (points[-1].at, moments[-1].at)
    assert WINDOW_SECONDS <= points[-1].at - points[0].at < WINDOW_SECONDS + 10
    assert HOUR_SECONDS - 20 <= moments[-1].at - moments[0].at < HOUR_SECONDS
    assert 20 <= len(points) <= 26
    assert 350 <= len(moments) <= 362


@pytest.mark.parametrize(("looks", "kept"), [(range(5), [0, 4]), ([4, 4], [4])])
def test_looks_that_are_close_together_leave_the_first_and_the_last(looks: Sequence[int], kept: Sequence[int]) -> None:
    """The same from the second look on. Of two looks at the same moment, which would have no rate, one is left."""
    points: tuple[Point, ...] = ()
    moments: tuple[Moment, ...] = ()
    for second in looks:
        points = with_point(points, Point(second, 0, 0, 0))
        moments = with_moment(moments, Moment(second, 0, 0, 0, 0))

    assert kept == [each.at for each in points] == [each.at for each in moments]


def test_looks_an_hour_apart_still_compare() -> None:
    """`round.interval` may be as long, and a filter above its limit shows only in two moments."""
    moments: tuple[Moment, ...] = ()
    for second in range(0, 5 * 4_000, 4_000):
        moments = with_moment(moments, Moment(second, 0, 0, 0, 0))

    assert [12_000, 16_000] == [each.at for each in moments]


def test_a_clock_that_is_set_back_begins_anew() -> None:
    """Points of the future would stay until the clock comes to them, and hide a stall until then."""
    points: tuple[Point, ...] = ()
    moments: tuple[Moment, ...] = ()
    for second in (*range(3_600, 3_700, 10), *range(100)):
        points = with_point(points, Point(second, 0, 0, 0))
        moments = with_moment(moments, Moment(second, 0, 0, 0, 0))

    assert (0, 99) == (points[0].at, points[-1].at)
    assert (0, 99) == (moments[0].at, moments[-1].at)


def test_a_day_has_as_many_moments_as_an_hour() -> None:
    """It reaches back for a day, and its newest moment is the last one."""
    moments: tuple[Moment, ...] = ()
    for second in range(0, 100_000, 10):
        moments = with_moment(moments, Moment(second, 0, 0, 0, 0), DAY_SECONDS, DAY_MOMENT_SECONDS)

    assert 99_990 == moments[-1].at
    assert DAY_SECONDS - 480 <= moments[-1].at - moments[0].at < DAY_SECONDS
    assert 350 <= len(moments) <= 362
