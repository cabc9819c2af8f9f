"""The history of a group's offsets: how times are written, and what a restore moves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.errors import NotUsable
from app.model import Partition
from app.offsets.contract import PastOffsets
from app.offsets.history import milliseconds_of, moves_back, time_of, written
from tests.fakes import FakeKafka, FakeOffsets

A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b", 0)


class Past:
    """A history in a list."""

    def __init__(self, *entries: tuple[str, PastOffsets]) -> None:
        self.entries = entries

    def history(self, topic: str, most: int, until: int | None = None) -> Sequence[PastOffsets]:
        known = [each for name, each in self.entries if name == topic and (until is None or each.time <= until)]
        return sorted(known, key=lambda each: -each.time)[:most]


@pytest.mark.parametrize(
    "text", ["2026-11-22T06:12:03.123Z", "2026-11-22 06:12:03.123", "2026-11-22T07:12:03.123+01:00", "1795327923123"]
)
def test_a_time_can_be_written_in_several_ways(text: str) -> None:
    """What a listing shows can be given back, as can milliseconds and other zones."""
    assert 1795327923123 == milliseconds_of(text)
    assert time_of(1795327923123) == "2026-11-22T06:12:03.123Z"


def test_what_is_no_time_is_refused() -> None:
    """A word that is no time is no time."""
    with pytest.raises(ValueError, match="yesterday"):
        milliseconds_of("yesterday")


def test_an_entry_is_a_line() -> None:
    """Partitions come in the order of their numbers."""
    assert written(PastOffsets(0, {10: 3, 2: 7})) == "1970-01-01T00:00:00.000Z  2=7 10=3"


def test_each_topic_goes_back_to_its_newest_entry_that_is_not_later() -> None:
    """Entries of two topics have different times; a partition that the entry lacks stays as it is."""
    store = FakeOffsets(FakeKafka({}))
    store.save(A0, 100, "now")
    past = Past(("a", PastOffsets(10, {0: 1})), ("a", PastOffsets(20, {0: 2})), ("b", PastOffsets(15, {0: 5})))

    found = [str(move) for move in moves_back(past, store, [A0, A1, B0], 19)]

    assert ["a-0: 100 → 1", "b-0: nothing → 5"] == found


def test_a_history_that_is_too_young() -> None:
    """A time before the first entry is refused by name, before anything moves."""
    with pytest.raises(NotUsable, match=r"the history of a does not go back to 1970-01-01T00:00:00\.005Z"):
        list(moves_back(Past(("a", PastOffsets(10, {0: 1}))), FakeOffsets(FakeKafka({})), [A0], 5))
