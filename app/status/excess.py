"""Filters that drop more than their limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.cures import FILTERS
from app.status.snapshot import Problem
from app.status.window import Moment

FEWEST = 1_000
"""How many records a share is judged by, at least."""


def share(name: str, hour: Sequence[Moment]) -> float | None:
    """Return the share of the records of the last hour that a filter dropped; None if they are too few to tell."""
    if not hour or (records := hour[-1].records - hour[0].records) < FEWEST:
        return None
    return (hour[-1].filtered.get(name, 0) - hour[0].filtered.get(name, 0)) / records


def excesses(
    limits: Mapping[str, float | None], hour: Sequence[Moment], known: Mapping[str, Problem]
) -> dict[str, Problem]:
    """Return the problem of each filter above its limit; a known one keeps the time when it began."""
    return {
        name: _problem(name, limit, hour[-1].at).continuing(known.get(name))
        for name, limit in limits.items()
        if limit is not None and (dropped := share(name, hour)) is not None and dropped > limit
    }


def _problem(name: str, limit: float, now: float) -> Problem:
    cause = f"the filter {name} drops more than its limit of {100 * limit:g} % of the records of the last hour"
    return Problem(cause, f"make sure that it drops what it should: {FILTERS}", now, warns=True)
