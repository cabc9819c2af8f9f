"""Moves between stores and back in time, as `winnow offsets migrate` and `history --restore` make them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from app.errors import ConfigError, PartlySet
from app.model import CommittedOffset, Partition, Plugin
from app.offsets.contract import OffsetStore, PastOffsets, StoreContext
from app.offsets.none import NoOffsets
from app.operate import stores
from app.operate.running import StoppedService
from app.operate.stores import Stores
from tests.fakes import FakeKafka, FakeOffsets
from tests.fakes.driver import DriverKafka, config

A, B = Partition("raw", 0), Partition("raw", 1)


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


def test_a_mirror_has_a_history_whatever_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store `none`, which keeps nothing between runs, comes first. A restore has nowhere to set what it finds."""
    kafka, said = Remembering(p0=(0, 100)), list[str]()
    settings = config("delivery.guarantee=at-least-once", "offsets={store: {name: none}, mirrors: [{name: hbase}]}")

    def opened(plugin: Plugin, context: StoreContext) -> OffsetStore:
        return kafka if plugin.name == "hbase" else NoOffsets(context)

    monkeypatch.setattr(stores, "open_store", opened)
    with Stores(settings, lambda: kafka.clients, said.append) as opened_stores:
        opened_stores.list_history(None, 5)
        assert ["raw", "  1970-01-01T00:00:01.000Z  0=50"] == said
        with pytest.raises(ConfigError, match=r"offsets\.store: none keeps nothing between runs"):
            opened_stores.restore(None, 2_000, dry_run=True)


def test_a_move_that_failed_midway_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with 1, as one that refuses to move an offset back, and did not say that a part had moved."""
    kafka, target, said = DriverKafka(p0=(0, 100), p1=(0, 100)), FakeKafka({}), list[str]()
    kafka.committed = {A: CommittedOffset(50), B: CommittedOffset(60)}
    target.saves_left = 1

    def opened(plugin: Plugin, _: object) -> OffsetStore:
        return kafka if plugin.name == "kafka" else FakeOffsets(target)

    monkeypatch.setattr(stores, "open_store", opened)
    monkeypatch.setattr(stores, "StoppedService", partial(StoppedService, sleep=lambda _: None))

    with Stores(config(), lambda: kafka.clients, said.append) as opened_stores, pytest.raises(PartlySet) as caught:
        opened_stores.migrate("kafka", "redis", dry_run=False, force=False)

    assert (3, ["moved    raw-0: nothing → 50"]) == (caught.value.exit_code, said)
    assert caught.value.cause.startswith(
        "1 of 2 offsets were moved, then raw-1@60: the offset may not have been stored"
    )
