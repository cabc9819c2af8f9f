"""A task's times, as written in an offset's metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model import Attempt
from app.offsets.metadata import OffsetMetadata
from app.offsets.times import BOUNDS, Histogram, TaskReport, TaskTimes, place_of

SECONDS = st.integers(0, 10**7).map(lambda milliseconds: milliseconds / 1000)
ONE = SECONDS.map(lambda seconds: Histogram(seconds, (*(0,) * place_of(seconds), 1)))
HISTOGRAMS = st.lists(ONE).map(lambda each: sum(each, Histogram()))
TIMES = st.builds(TaskTimes, SECONDS, SECONDS, HISTOGRAMS, HISTOGRAMS, HISTOGRAMS)


@given(st.tuples(*[st.integers(0, 10**6)] * 3).map(lambda each: Attempt(*each)), TIMES)
def test_a_report_is_read_as_it_was_written(attempt: Attempt, times: TaskTimes) -> None:
    """Alone and within the metadata, to the millisecond."""
    text = str(TaskReport(attempt, times))
    found = OffsetMetadata.parse(str(OffsetMetadata("id", 5, report=TaskReport(attempt, times)))).report

    assert found is not None
    assert TaskReport.parse(text) == found
    assert (attempt, text) == (found.attempt, str(found))
    assert times.seconds == pytest.approx(found.times.seconds)
    assert times.commit.counts == found.times.commit.counts


@pytest.mark.parametrize("text", ["", "1.2.3", "1.2;0;0;0:;0:;0:", "1.2.3.4;0;0;0:;0:;0:", "1.2.3;0;0;0:;x:;0:"])
def test_what_is_no_report_says_nothing(text: str) -> None:
    """Other text gives no report."""
    assert TaskReport.parse(text) is None


@given(TIMES, TIMES)
def test_added_times_can_be_subtracted(before: TaskTimes, more: TaskTimes) -> None:
    """The difference of two reports is what came between them."""
    new = (before + more).since(before)

    assert more.seconds == pytest.approx(new.seconds, abs=1e-6)
    assert sum(more.commit.counts) == sum(new.commit.counts)


@pytest.mark.parametrize(("seconds", "place"), [(0.0, 0), (0.001, 0), (0.0011, 1), (10.0, 12), (10.1, len(BOUNDS))])
def test_a_bound_belongs_to_its_bucket(seconds: float, place: int) -> None:
    """As with Prometheus' `le`."""
    assert place == place_of(seconds)


def test_a_report_is_short() -> None:
    """The report of a task's busy day takes less than a tenth of the broker's default limit."""
    busy = Histogram(86_400.0, (10**6,) * 14)

    assert len(str(TaskReport(Attempt(1_000, 2_000, 7), TaskTimes(86_400.0, 86_400.0, busy, busy, busy)))) < 409
