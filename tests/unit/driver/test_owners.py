"""Two runs of the service with one group: which one continues, and what they report."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.driver.owners import Owners
from app.errors import ForeignSink, ServiceRuns, Superseded
from app.model import NOBODY, CommittedOffset, Owner, Partition
from app.offsets.metadata import OffsetMetadata
from app.runtime import Runtime, Timings

A, B = Partition("raw", 0), Partition("raw", 1)
GONE_SECONDS = Timings().gone
ME = Owner(1_000, "here", "clean")
EARLIER, LATER = Owner(900, "there", "clean"), Owner(1_100, "there", "clean")


def offsets(*committed: tuple[Partition, int, Owner]) -> Mapping[Partition, CommittedOffset]:
    return {
        partition: CommittedOffset(offset, str(OffsetMetadata(owner=owner))) for partition, offset, owner in committed
    }


class OwnersHarness:
    """Owners that have seen the old commits, and their clock."""

    def __init__(self, left_over: Owner = NOBODY) -> None:
        self.now = 0.0
        self.owners = Owners(ME, "g", Runtime(lambda: self.now))
        self.look(left_over)
        self.look(left_over)

    def look(self, owner: Owner, offset: int = 5) -> None:
        self.owners.observe(offsets((A, offset, owner), (B, 7, ME)))


@pytest.mark.parametrize("left_over", [EARLIER, LATER, NOBODY, ME])
def test_what_is_left_over_is_no_sign_of_life(left_over: Owner) -> None:
    """A vanished host's clock may have been ahead, so an offset that stands still proves nothing."""
    harness = OwnersHarness(left_over)

    for _ in range(3):
        harness.look(left_over)

    assert harness.owners.rival is None


def test_what_tasks_of_an_earlier_run_commit_before_ours_open_is_no_sign_of_life() -> None:
    """They may continue between the first discovery and the first round, until they are fenced."""
    owners = Owners(ME, "g", Runtime(lambda: 0.0))
    owners.observe(offsets((A, 5, LATER)))
    owners.observe(offsets((A, 6, LATER)))
    owners.observe(offsets((A, 7, ME)))

    assert owners.rival is None


@pytest.mark.parametrize("later", [LATER, Owner(1_000, "there", "clean")])
def test_the_earlier_run_ends(later: Owner) -> None:
    """A later run commits; this one names it and the cure. If both started at once, the host name decides."""
    harness = OwnersHarness()

    with pytest.raises(
        Superseded, match=r"service on there that started at 1970-01-01.* and writes to clean"
    ) as caught:
        harness.look(later, 6)

    assert "another group.id" in caught.value.cure


def test_a_commit_at_the_same_offset_is_a_sign_of_life() -> None:
    """Without traffic, only the metadata change."""
    harness = OwnersHarness(ME)

    with pytest.raises(Superseded):
        harness.look(LATER)


def test_one_later_run_among_earlier_ones_is_enough() -> None:
    """More than two runs may meet; only the latest continues."""
    harness = OwnersHarness()

    with pytest.raises(Superseded):
        harness.owners.observe(offsets((A, 6, LATER), (B, 8, EARLIER)))


def test_a_rival_that_pauses_is_still_there() -> None:
    """A single look without a commit does not show that it has ended."""
    harness = OwnersHarness()

    harness.look(EARLIER, 6)
    harness.look(EARLIER, 6)

    assert EARLIER == harness.owners.rival


@pytest.mark.parametrize("earlier", [EARLIER, Owner(1_000, "a-host", "clean")])
def test_the_later_run_goes_on(earlier: Owner) -> None:
    """It reports the other run while that commits, and for a while after."""
    harness = OwnersHarness()

    harness.look(earlier, 6)
    assert earlier == harness.owners.rival
    harness.now += GONE_SECONDS - 1
    assert earlier == harness.owners.rival
    harness.now += 1
    assert harness.owners.rival is None


def test_an_outage_is_no_silence() -> None:
    """While Kafka is not responding to us, the other run may not reach it either, nor could we see its commits."""
    harness = OwnersHarness()
    harness.look(EARLIER, 6)
    harness.now += GONE_SECONDS - 1
    harness.look(EARLIER, 6)

    harness.owners.sight.lose()
    harness.now += 90
    harness.look(EARLIER, 6)

    assert EARLIER == harness.owners.rival
    harness.now += GONE_SECONDS
    assert harness.owners.rival is None


def test_who_is_gone_does_not_come_back_with_an_outage() -> None:
    """Only a commit shows that it is back."""
    harness = OwnersHarness()
    harness.look(EARLIER, 6)
    harness.now += GONE_SECONDS
    harness.look(EARLIER, 6)

    harness.owners.sight.lose()
    harness.look(EARLIER, 6)

    assert harness.owners.rival is None
    harness.look(EARLIER, 7)
    assert EARLIER == harness.owners.rival


class TestBeforeWork:
    """A run that first looks for others of its generation."""

    @pytest.mark.parametrize(("commit_seconds", "seconds"), [(0.5, 3.0), (15.0, 30.0)])
    def test_it_looks_for_as_long_as_a_commit_may_take(self, commit_seconds: float, seconds: float) -> None:
        """Only then can it rule out others."""
        harness = OwnersHarness(EARLIER)
        harness.owners.look_before_work(commit_seconds, refuse=False)
        harness.now += seconds - 0.1
        assert harness.owners.must_look

        harness.now += 0.1
        assert not harness.owners.must_look

    def test_the_wait_for_an_answer_is_no_look(self) -> None:
        """Another run may have waited for the same coordinator."""
        harness = OwnersHarness(EARLIER)
        harness.owners.look_before_work(0.5, refuse=True)
        harness.now += 6.0
        harness.owners.sight.waited(since=harness.now - 5.0)

        assert harness.owners.must_look
        harness.now += 2.0
        assert not harness.owners.must_look

    @pytest.mark.parametrize("refuse", [True, False])
    def test_after_an_outage_it_looks_longer(self, refuse: bool) -> None:
        """A living service may need time to work again. The outage may have begun before this run has looked at all."""
        harness = OwnersHarness(EARLIER)
        harness.owners.sight.lose()
        harness.owners.look_before_work(0.5, refuse=refuse)
        harness.now += 90
        harness.look(EARLIER)

        harness.now += GONE_SECONDS - 0.1
        assert harness.owners.must_look
        harness.now += 0.1
        assert not harness.owners.must_look
        harness.owners.sight.lose()
        harness.owners.work()
        assert not harness.owners.must_look

    def test_where_no_offset_names_another_run_there_is_nobody_to_wait_for(self) -> None:
        """A first start begins at once."""
        harness = OwnersHarness()
        harness.owners.look_before_work(0.5, refuse=True)

        assert not harness.owners.must_look

    @pytest.mark.parametrize("other", [EARLIER, LATER])
    def test_it_refuses(self, other: Owner) -> None:
        """Even if it is the later one, a backfill neither ends nor fights the service, and reports the cure."""
        harness = OwnersHarness(other)
        harness.owners.look_before_work(0.5, refuse=True)

        with pytest.raises(
            ServiceRuns, match=r"the service on there .* works for group 'g': stop it, or .* --stand-by"
        ):
            harness.look(other, 6)

    @pytest.mark.parametrize("other", [EARLIER, LATER])
    def test_it_stands_by(self, other: Owner) -> None:
        """A run that need not refuse waits for the other one, whichever of them is the later one."""
        harness = OwnersHarness(other)
        harness.owners.look_before_work(0.5, refuse=False)

        harness.look(other, 6)

        assert harness.owners.stands_by
        assert other == harness.owners.rival


@pytest.mark.parametrize("started", [900, 1_100])
def test_another_generation_is_no_rival(started: int) -> None:
    """Generations do not end each other by an error: the larger one takes over, whenever it started."""
    harness = OwnersHarness()

    harness.look(Owner(started, "there", "clean", 1), 6)

    assert harness.owners.rival is None
    assert {A} == harness.owners.takeover.taken.keys()


def test_a_partition_that_is_seen_for_the_first_time_may_hold_a_leftover() -> None:
    """An earlier run may have read a topic that joins later."""
    harness = OwnersHarness()

    harness.owners.observe(offsets((Partition("raw", 2), 5, LATER)))

    assert harness.owners.rival is None


def test_an_operator_is_no_rival() -> None:
    """An offset set by an operator names no run."""
    harness = OwnersHarness()

    harness.look(NOBODY, 3)

    assert harness.owners.rival is None


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_another_sink_is_refused_at_once(looks: int) -> None:
    """Active or not, its owner wrote the group's records elsewhere. The error names both sinks and the cure."""
    owners = Owners(ME, "g", Runtime(lambda: 0.0))
    for _ in range(looks):
        owners.observe(offsets((A, 5, ME)))

    with pytest.raises(ForeignSink, match=r"'clean' here, but the offset of raw-0 .* writes to elsewhere") as caught:
        owners.observe(offsets((A, 6, Owner(10, "there", "elsewhere"))))

    assert "winnow offsets reset -c winnow.yaml --to-current" in caught.value.cure
