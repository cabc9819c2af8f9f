"""Filters that drop more than their limit."""

from __future__ import annotations

import pytest

from app.status.excess import FEWEST, excesses, share
from app.status.window import Moment


def hour(records: int, dropped: int) -> list[Moment]:
    between = Moment(30, 600, 0, 0, 0, filtered={"f": 9})
    return [
        Moment(0, 500, 0, 0, 0, filtered={"f": 7}),
        between,
        Moment(60, 500 + records, 0, 0, 0, filtered={"f": 7 + dropped, "new": dropped}),
    ]


@pytest.mark.parametrize(
    ("records", "dropped", "expected"), [(FEWEST, 400, 0.4), (FEWEST - 1, 400, None), (FEWEST, 0, 0.0)]
)
def test_a_share_is_that_of_the_last_hour(records: int, dropped: int, expected: float | None) -> None:
    """Too few records tell nothing."""
    assert expected == share("f", hour(records, dropped))
    assert share("f", []) is None
    assert [0.4, 0.0] == [share(name, hour(FEWEST, 400)) for name in ("new", "g")]


def test_only_what_is_above_its_limit() -> None:
    """A filter without a limit may drop everything."""
    assert {} == excesses({"f": 0.4, "g": None}, hour(1_000, 400), {})
    assert {} == excesses({"f": None}, hour(1_000, 1_000), {})
    assert ["f"] == [*excesses({"f": 0.4}, hour(1_000, 401), {})]


def test_an_excess_keeps_its_beginning() -> None:
    """It warns, and names the filter, the limit and the command that shows the counts."""
    (before,) = excesses({"f": 0.25}, hour(1_000, 400), {}).values()
    (after,) = excesses(
        {"f": 0.25}, [*hour(1_000, 400), Moment(99, 9_500, 0, 0, 0, filtered={"f": 6_000})], {"f": before}
    ).values()

    assert (60, True) == (after.since, after.warns)
    assert "the filter f drops more than its limit of 25 % of the records of the last hour" == after.cause
    assert "winnow filters -c winnow.yaml" in after.cure
