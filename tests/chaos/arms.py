"""
Services that are wrong on purpose because a part of the product is replaced, in the driver or in Spark's workers.

Each lacks one protection. Those that have other clients are in `work`. Nothing of the product is imported before a
part is replaced: an older checkout may not have it yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


def _nothing() -> None:
    """Replace nothing."""


class Arm(NamedTuple):
    """What to replace, in which process."""

    in_driver: Callable[[], None] = _nothing
    in_worker: Callable[[], None] = _nothing


def _leaderless_stops_all() -> None:
    """Wrong: discovery fails as a whole if one partition has no leader."""
    from app.driver.discover import Discovery
    from app.errors import Unreachable

    per_partition: Any = Discovery._source_offsets

    def all_or_nothing(self: Discovery, *, stable: bool) -> Any:
        found = per_partition(self, stable=stable)
        if found.unreadable:
            raise Unreachable("a source partition has no leader")
        return found

    Discovery._source_offsets = all_or_nothing  # type: ignore[method-assign]


def _swallowed_refusals() -> None:
    """Wrong: that Kafka refuses us is never final, and nobody is told."""
    from app.driver.retry import Refusals
    from app.driver.tracker import StatusTracker

    Refusals.are_final = lambda *_: False  # type: ignore[method-assign]
    StatusTracker.kafka_is_away = lambda *_: None  # type: ignore[method-assign]


ARMS: Mapping[str, Arm] = {
    "leaderless-stops-all": Arm(in_driver=_leaderless_stops_all),
    "swallowed-refusals": Arm(in_driver=_swallowed_refusals),
}
WHOLE = Arm()


def arm_of(name: str) -> Arm:
    """Return what an arm replaces: nothing, for the honest one and for those that have other clients."""
    return ARMS.get(name, WHOLE)
