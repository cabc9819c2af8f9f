"""The search finds exactly the refused records, in few steps, whatever gaps the offsets have."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.executor.lane.search import FAILURES_IN_A_ROW, LARGEST_STEP, Search


@dataclass
class Partition:
    """
    A partition cleansed as by a lane; a transaction with a refused record fails as a whole.

    Args:
        offsets: of its records.
        refused: whether the record at an offset is refused.
        end: the offset after the last.
        chunk: how many offsets a transaction covers unless the search limits it.
    """

    offsets: Collection[int]
    refused: Callable[[int], bool]
    end: int
    chunk: int = 1 << 30
    search: Search = field(default_factory=Search)
    committed: int = 0
    lines: list[int] = field(default_factory=list)
    dead_letters: list[int] = field(default_factory=list)
    steps: int = 0
    refused_before: int | None = None
    """The end of the last transaction that was refused."""

    def cleanse(self) -> None:
        while self.committed < self.end:
            self.step()

    def step(self) -> None:
        self.steps += 1
        end = min(self.end, self.committed + self.chunk)
        if self.search.stop is not None:
            assert self.search.stop > self.committed
            end = min(end, self.search.stop)
        records = [offset for offset in self.offsets if self.committed <= offset < end]
        if self.search.found is not None:
            assert self.search.found == self.committed
            assert records == [self.search.found], "a record is found only where it is"
            self.dead_letters += records
        elif any(map(self.refused, records)):
            self.search.refused(self.committed, end)
            self.refused_before = end
            return
        else:
            self.lines += records
        self.committed = end
        self.search.committed(end)


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)), st.integers(1, 400))
def test_exactly_the_refused_records_become_dead_letters(refused: set[int], gaps: set[int], chunk: int) -> None:
    """Everything else is written in order, and each refused record costs few steps."""
    offsets = [offset for offset in range(301) if offset not in gaps]
    partition = Partition(offsets, refused.__contains__, 301, chunk)

    partition.cleanse()

    assert [offset for offset in offsets if offset not in refused] == partition.lines
    assert [offset for offset in offsets if offset in refused] == partition.dead_letters
    # Between two refused records: doubling up to the second, halving down to it, the dead letter.
    assert partition.steps <= 301 // chunk + 22 * (len(partition.dead_letters) + 1)


@pytest.mark.parametrize("offset", [0, 1, 7])
def test_a_search_begins_with_the_third_refusal_at_an_offset(offset: int) -> None:
    """Two may be temporary, wherever they are."""
    search = Search()
    for _ in range(FAILURES_IN_A_ROW - 1):
        search.refused(offset, offset + 8)
        assert search.stop is None
    search.refused(offset, offset + 8)

    assert (offset + 4, None) == (search.stop, search.found)


def test_one_record_among_twenty_thousand() -> None:
    """It is found in about as many steps as the number has binary digits."""
    partition = Partition(range(20_000), {12_345}.__contains__, 20_000)

    while not partition.dead_letters:
        partition.step()

    assert partition.steps <= FAILURES_IN_A_ROW + 17


def test_the_last_of_some_records_is_tried_alone() -> None:
    """If those before it were accepted, it is to blame. A good record that follows must not become a dead letter."""
    search = Search()
    for _ in range(FAILURES_IN_A_ROW):
        search.refused(0, 2)
    search.committed(1)

    assert 2 == search.stop


def test_a_row_of_refused_records_makes_steady_progress() -> None:
    """After a refused record the next one is tried alone: two steps each, however many follow."""
    partition = Partition(range(2_000), range(500, 700).__contains__, 2_000)

    partition.cleanse()

    assert list(range(500, 700)) == partition.dead_letters
    assert partition.steps <= 2 * 200 + 40


def test_a_refusal_that_passes_is_not_searched() -> None:
    """A few refusals at different offsets, or too few at one, change nothing."""
    search = Search()
    for start in (0, 0, 7, 7):
        search.refused(start, 100)

    assert (None, None) == (search.stop, search.found)
    search.refused(7, 100)
    assert 53 == search.stop


def test_a_record_that_is_taken_in_the_end_is_not_found() -> None:
    """If the topic is fixed during the search, no record becomes a dead letter, and the search ends."""
    refuses = True
    partition = Partition(range(100_000), lambda offset: refuses and offset == 700, 100_000)
    while partition.refused_before != 701:
        partition.step()
    refuses = False

    partition.cleanse()

    assert [] == partition.dead_letters
    assert list(range(100_000)) == partition.lines
    assert partition.search.stop is None


def test_what_cannot_be_delivered_blames_no_record() -> None:
    """It is tried alone, and neither dropped nor a dead letter; a record that was found before stays found."""
    search = Search()
    for end in (8, 8, 8, 4, 2, 1):
        search.undelivered(0, end)
    assert (1, None) == (search.stop, search.found)

    for found in (None, None, 0):
        search.refused(0, 1)
        search.undelivered(0, 1)
        assert (1, found) == (search.stop, search.found)


def test_after_an_outage_in_the_middle_of_a_search_one_refusal_blames_no_record() -> None:
    """It may be temporary, and the refusals before the outage were those of another record."""
    search = Search()
    for _ in range(FAILURES_IN_A_ROW):
        search.refused(0, 16)
    search.committed(8)
    for end in (16, 12, 10, 9):
        search.undelivered(8, end)
    search.refused(8, 9)

    assert (9, None) == (search.stop, search.found)


@pytest.mark.parametrize("fail", [Search.refused, Search.undelivered])
def test_what_took_no_record_blames_none(fail: Callable[[Search, int, int], None]) -> None:
    """Nor does it count when records come: commits of an idle partition may have failed weeks ago."""
    search = Search()
    for _ in range(10):
        fail(search, 5, 5)
    for _ in range(FAILURES_IN_A_ROW - 1):
        search.refused(5, 6)

    assert (None, None) == (search.stop, search.found)


@pytest.mark.parametrize("offset", [8, 9, 100])
def test_an_offset_that_has_moved_on_ends_a_finding(offset: int) -> None:
    """If the refused commit succeeded after all, or an operator moved the offset, the search continues behind it."""
    search = Search()
    for _ in range(FAILURES_IN_A_ROW):
        search.refused(7, 8)
    assert (7, 8) == (search.found, search.stop)

    search.committed(7)
    assert 7 == search.found
    search.committed(offset)

    assert search.found is None
    assert (search.stop or 0) > offset


@pytest.mark.parametrize("fail", [Search.refused, Search.undelivered])
def test_the_search_ends_when_nothing_fails_any_more(fail: Callable[[Search, int, int], None]) -> None:
    """The steps grow up to a limit; then the search is over, and one refusal blames no record."""
    search = Search()
    for _ in range(FAILURES_IN_A_ROW):
        fail(search, 0, 1)
    steps, at = [], 0
    while search.stop is not None:
        steps.append(search.stop - at)
        at = search.stop
        search.committed(at)

    assert [1, *(1 << n for n in range(LARGEST_STEP.bit_length()))] == steps
    search.refused(at, at + 1)
    assert (None, None) == (search.stop, search.found)
