"""Moves between stores and back in time, as `winnow offsets migrate` and `history --restore` make them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore, PastOffsets
from app.operate import stores
from app.operate.running import StoppedService
from app.operate.stores import Stores
from tests.fakes.driver import DriverKafka, config

A = Partition("raw", 0)


class Remembering(DriverKafka):
    """A group whose store remembers that partition 0 was at 50."""

    def history(self, topic: str, most: int, until: int | None = None) -> Sequence[PastOffsets]:
        return [PastOffsets(1_000, {0: 50})]


def test_a_restore_sees_what_was_committed_until_the_service_had_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said `same`, and left the partition at the service's last offset."""
    kafka, said = Remembering(p0=(0, 100)), list[str]()
    kafka.committed = {A: CommittedOffset(50)}

    def stops() -> None:
        kafka.committed[A] = CommittedOffset(90)

    def opened(*_: object) -> OffsetStore:
        return kafka

    kafka.when_asked = stops
    monkeypatch.setattr(stores, "open_store", opened)
    monkeypatch.setattr(stores, "StoppedService", partial(StoppedService, sleep=lambda _: None))

    with Stores(config(), lambda: kafka.clients, said.append) as opened_stores:
        assert opened_stores.restore(None, 2_000, dry_run=False)

    assert 50 == kafka.committed[A].offset
    assert ["moved    raw-0: 90 → 50"] == said
