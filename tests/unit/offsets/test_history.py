"""The history of a group's offsets: how times are written, and what a restore moves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.driver.starting_offsets import is_witness
from app.errors import NotUsable, TopicRecreated
from app.model import Partition, Topic
from app.offsets.contract import PastOffsets
from app.offsets.history import moves_back, written
from app.offsets.metadata import Counts, OffsetMetadata
from tests.fakes import FakeKafka, FakeOffsets

A0 = Partition("a", 0)


class Past:
    """A history in a list."""

    def __init__(self, *entries: tuple[str, PastOffsets]) -> None:
        self.entries = entries

    def history(self, topic: str, most: int, until: int | None = None) -> Sequence[PastOffsets]:
        known = [each for name, each in self.entries if name == topic and (until is None or each.time <= until)]
        return sorted(known, key=lambda each: -each.time)[:most]


def test_an_entry_is_a_line() -> None:
    """Partitions are in numeric order."""
    assert written(PastOffsets(0, {10: 3, 2: 7})) == "1970-01-01T00:00:00.000Z  2=7 10=3"


TOPICS = {"a": Topic("a", "id-1", 2), "b": Topic("b", "", 1)}


def test_each_topic_goes_back_to_its_newest_entry_that_is_not_later() -> None:
    """
    Entries of two topics have different times; a partition without an entry, or that no longer exists, does not move.

    The topic's id goes into the metadata, so that a partition added later counts as new and a recreated topic is
    noticed.
    """
    store = FakeOffsets(FakeKafka({}))
    store.save(A0, 100, "now")
    past = Past(("a", PastOffsets(10, {0: 1})), ("a", PastOffsets(20, {0: 2})), ("b", PastOffsets(15, {0: 5, 7: 3})))

    found = list(moves_back(past, store, TOPICS, 19))

    assert ["a-0: 100 → 1", "b-0: nothing → 5"] == [str(move) for move in found]
    assert is_witness(found[0].source, "id-1")


@pytest.mark.parametrize(("then", "now"), [("id-0", ""), ("", "id-0"), ("id-0", "id-1"), ("id-1", "id-0")])
def test_offsets_of_a_deleted_topic_are_not_restored(then: str, now: str) -> None:
    """The entry or the store's metadata shows that the offsets belong to other records."""
    store = FakeOffsets(FakeKafka({}))
    store.save(A0, 100, str(OffsetMetadata(now, 0, Counts(100, 100))))
    past = Past(("a", PastOffsets(10, {0: 1}, {0: then})), ("b", PastOffsets(10, {})))

    with pytest.raises(TopicRecreated, match="a-0@1: the topic was deleted and recreated"):
        list(moves_back(past, store, TOPICS, 19))


def test_a_history_that_is_too_young() -> None:
    """A time before the first entry is an error before anything moves."""
    with pytest.raises(NotUsable, match=r"the history of a does not go back to 1970-01-01T00:00:00\.005Z"):
        list(moves_back(Past(("a", PastOffsets(10, {0: 1}))), FakeOffsets(FakeKafka({})), TOPICS, 5))
