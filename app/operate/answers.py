"""One-off commands need an answer from every partition: a missing one must not count as empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from app.errors import Unreachable
from app.model import Partition

T = TypeVar("T")


def whole(partitions: Iterable[Partition], answers: Mapping[Partition, T]) -> Mapping[Partition, T]:
    """
    Return the answers if each of these partitions has one.

    Raises:
        Unreachable: a partition has none.
    """
    silent = sorted(set(partitions) - answers.keys())
    if silent:
        others = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
        cause = f"{silent[0]}{others} has no leader, or its broker does not answer, so nothing was done"
        raise Unreachable(cause, "bring its broker back, and try again")
    return answers
