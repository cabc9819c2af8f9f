"""What is reported of offsets that move between stores; `tests/integration/stores` moves them."""

from __future__ import annotations

from app.model import CommittedOffset, Partition
from app.offsets.migrate import Move, report_left

A, B, C = (Partition("raw", number) for number in range(3))


def test_a_partition_that_does_not_move_is_told() -> None:
    """If the store lost an offset, the service would start that partition over."""
    said: list[str] = []

    report_left([Move(B, CommittedOffset(4), None)], [C, B, A], "redis", said.append)

    assert ["left     raw-0: no offset in redis", "left     raw-2: no offset in redis"] == said
