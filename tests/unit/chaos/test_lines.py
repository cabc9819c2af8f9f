"""A reader knows each line of the load again, whatever became of it, and notices one that was changed."""

from __future__ import annotations

import pytest

from app.model import Partition, transactional_id
from tests.chaos.lines import (
    LARGE,
    LONG,
    OF_NEXT_YEAR,
    WITHOUT_KEY,
    Odd,
    bad_line,
    forged,
    is_cleansed,
    is_unchanged,
    numbered,
)
from tests.independent import cleanse, line

ODD = {"of next year": OF_NEXT_YEAR, "large": LARGE, "without key": WITHOUT_KEY, "long": LONG}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_line_is_known_again(odd: Odd) -> None:
    """As a dead letter it is unchanged; cleansed it is a line of the sink, unless it is bad."""
    value, key, _ = odd.record(6, 4)

    cleansed = cleanse(value)

    assert is_unchanged(value, 6, 4)
    assert odd.bad == (cleansed is None)
    assert cleansed is None or (is_cleansed(cleansed, 6, 4) and not is_cleansed(cleansed, 6, 5))
    assert (6, 4) == numbered(key, value)


def test_a_cut_line_is_known_again() -> None:
    """A large reject of which the end is cut counts as unchanged."""
    value = LARGE.record(6, 4).value

    assert is_unchanged(value[:1_000_000], 6, 4)
    assert not is_unchanged(value[:4], 6, 4)


def test_a_forged_record_bears_what_the_service_would_write() -> None:
    """Otherwise no reader could mistake its headers, and the harness would find nothing."""
    mark = f"{transactional_id('g', Partition('raw', 3))}@x"

    assert mark.encode() == dict(forged("g", "raw", 3))["winnow.transaction"]


@pytest.mark.parametrize("number", range(3))
def test_a_line_with_other_content(number: int) -> None:
    """A usual line and a bad one are unchanged; a line of another number, or with more content, is not."""
    assert is_unchanged(bad_line(2, number), 2, number)
    assert is_unchanged(line(number, 2), 2, number)
    assert not is_unchanged(line(number, 2), 2, number + 1)
    assert not is_unchanged(bad_line(2, number) + b"?", 2, number)
