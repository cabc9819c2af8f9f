"""Stores are found by name, and the contract holds for a store in a dict."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pytest

from app.errors import Unreachable
from app.model import CommittedOffset, Partition, Plugin
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.failures import StoreOptionError, UnknownStore
from app.offsets.registry import _STORES, open_store
from app.offsets.testing import OffsetStoreContract
from tests.fakes import FakeKafka, FakeOffsets

CONTEXT = StoreContext("group", {"bootstrap.servers": "nowhere:9092"})


def test_kafka_is_the_built_in_store() -> None:
    """The default store needs no registration and is transactional."""
    store = open_store(Plugin("kafka"), CONTEXT)

    assert "kafka" in _STORES.names()
    assert store.transactional
    store.close()


@pytest.mark.usefixtures("third_party_store")
def test_a_package_adds_a_store_with_an_entry_point() -> None:
    """One file and one registration; options are keyword arguments, written with dots."""
    store = open_store(Plugin("dictionary", {"url": "somewhere"}), CONTEXT)

    assert "dictionary" in _STORES.names()
    assert not store.transactional
    assert (CONTEXT, "somewhere") == (store.context, store.url)  # type: ignore[attr-defined]  # a third party's


@pytest.mark.usefixtures("third_party_store")
@pytest.mark.parametrize(
    ("store", "error", "answer"),
    [
        (Plugin("kafak"), UnknownStore, "no offset store is called 'kafak'; did you mean 'kafka'?"),
        (Plugin("kafka", {"url": "x"}), StoreOptionError, "offset store kafka: no option 'url'"),
        (Plugin("dictionary"), StoreOptionError, "option 'url' is missing"),
    ],
)
def test_a_message_names_the_correction(store: Plugin, error: type[Exception], answer: str) -> None:
    """A wrong name or option is an error before anything connects."""
    with pytest.raises(error, match=answer):
        open_store(store, CONTEXT)


def test_a_message_repeats_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's error may quote an option or a URL; secrets in it are masked."""

    def refuse(*_: object, **options: object) -> OffsetStore:
        raise ValueError(f"cannot use {options} of redis://:hunter2@h")

    monkeypatch.setattr("app.offsets.redis.RedisOffsets", refuse)

    with pytest.raises(StoreOptionError) as caught:
        open_store(Plugin("redis", {"url": "redis://h", "password": "hunter2"}), CONTEXT)

    assert "'redis://h'" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_store_that_connects_at_once_may_not_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no wrong option: the next round tries again."""

    def refuse(*_: object, **__: object) -> OffsetStore:
        raise Unreachable("Redis is away")

    monkeypatch.setattr("app.offsets.redis.RedisOffsets", refuse)

    with pytest.raises(Unreachable):
        open_store(Plugin("redis", {"url": "redis://h"}), CONTEXT)


class TestContractOnAFake(OffsetStoreContract):
    """The fake that other tests use keeps the contract."""

    @pytest.fixture(autouse=True)
    def _kafka(self) -> None:
        self.kafka = FakeKafka({})

    def open_store(self) -> OffsetStore:
        return FakeOffsets(self.kafka)


class ForgetfulStore(FakeOffsets):
    """Wrong: its offsets can go back."""

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        self.reset(partition, offset, metadata)


class Eager(FakeOffsets):
    """Wrong: it returns partitions that have no offset."""

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        return {
            each: super(Eager, self).load([each], stable=stable).get(each, CommittedOffset(0)) for each in partitions
        }


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        (ForgetfulStore, "test_an_offset_does_not_go_back"),
        (ForgetfulStore, "test_a_zombie_cannot_move_it_back"),
        (Eager, "test_partitions_do_not_mix"),
    ],
)
def test_the_contract_finds_a_store_that_is_wrong(wrong: type[FakeOffsets], test: str) -> None:
    """The contract fails for each wrong store, so it proves something."""
    kafka = FakeKafka({})

    class Broken(OffsetStoreContract):
        def open_store(self) -> OffsetStore:
            return wrong(kafka)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(Broken(), test)()


def test_a_missing_client_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optional store without its client says what to install."""
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "app.offsets.redis", raising=False)

    with pytest.raises(UnknownStore) as caught:
        open_store(Plugin("redis", {"url": "redis://nowhere"}), CONTEXT)

    needs = "offset store redis needs the package redis, which is not installed: pip install 'winnow-kafka[redis]'"
    assert needs == str(caught.value)
