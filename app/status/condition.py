"""
One word for the condition of each partition, without thresholds to configure.

A partition is *ok* if, at least once in the window, everything that was waiting at one look is done by the next.
Otherwise it is *stalled* if its offset does not move, else *catching up* or *falling behind* by the trend of its lag.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import linear_regression
from typing import NamedTuple

from app.status.snapshot import PartitionState, PartitionStatus
from app.status.window import WINDOW_SECONDS, Look

# A window is complete once its first look is nearly that old; looks come every few seconds.
WHOLE = 0.75


class Condition(StrEnum):
    """The condition of a partition."""

    OK = "ok"
    CATCHING_UP = "catching up"
    FALLING_BEHIND = "falling behind"
    STALLED = "stalled"
    BLOCKED = "blocked"
    PAUSED = "paused"


class Judgement(NamedTuple):
    """The condition, and the seconds to close the gap at the pace of the window; None if the gap does not close."""

    condition: Condition
    seconds_to_close: float | None = None


def judge(status: PartitionStatus) -> Judgement:
    """Return the condition of a partition."""
    looks = status.looks
    if status.state is PartitionState.BLOCKED:
        return Judgement(Condition.BLOCKED)
    if status.state is PartitionState.PAUSED:
        return Judgement(Condition.PAUSED)
    if not looks or _keeps_up(looks):
        return Judgement(Condition.OK)
    if looks[-1].done == looks[0].done:
        # Until the window is complete, a task may still be opening.
        whole = looks[-1].at - looks[0].at >= WHOLE * WINDOW_SECONDS
        return Judgement(Condition.STALLED if whole else Condition.CATCHING_UP)
    closing = -linear_regression([look.at for look in looks], [_lag(look) for look in looks]).slope
    if closing <= 0:
        return Judgement(Condition.FALLING_BEHIND)
    return Judgement(Condition.CATCHING_UP, _lag(looks[-1]) / closing)


def records_per_second(looks: Sequence[Look]) -> float:
    """Return the records read per second, averaged over the window."""
    if len(looks) < 2 or looks[-1].at <= looks[0].at:
        return 0.0
    return max(0, looks[-1].records - looks[0].records) / (looks[-1].at - looks[0].at)


def _keeps_up(looks: Sequence[Look]) -> bool:
    """Return whether some look of the window found no lag, or its lag was done by the next look."""
    return any(_lag(look) == 0 for look in looks) or any(later.done >= look.end for look, later in pairwise(looks))


def _lag(look: Look) -> int:
    return max(0, look.end - look.done)
