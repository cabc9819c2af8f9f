"""A claim to an offset without transactions: which of two runs continues if both save it."""

from __future__ import annotations

import pytest

from app.errors import CorruptOffset, Fenced, Transient, Unreachable
from app.model import NOBODY, CommittedOffset, Owner, Partition
from app.offsets.claim import Claim
from app.offsets.metadata import OffsetMetadata
from tests.fakes import FakeKafka, FakeOffsets

A = Partition("raw", 0)
ME = Owner(5, "here", "clean", 2)
EARLIER = [Owner(9, "there", "clean", 1), Owner(4, "there", "clean", 2), NOBODY]
LATER = [Owner(1, "there", "clean", 3), Owner(6, "there", "clean", 2)]


def by(owner: Owner, offset: int) -> CommittedOffset:
    return CommittedOffset(offset, str(OffsetMetadata(owner=owner)))


class ClaimHarness:
    """A claim on an offset that others save, too."""

    def __init__(self, begins_with: CommittedOffset | None = None) -> None:
        self.kafka = FakeKafka({A: []})
        if begins_with is not None:
            self.kafka.committed[A] = begins_with
        self.store = FakeOffsets(self.kafka)
        self.claim = Claim(self.store, A, ME)
        self.fences = 0
        self.claim.begin(begins_with, self.fence)

    def fence(self) -> None:
        self.fences += 1

    def save(self, offset: int) -> CommittedOffset:
        self.claim.save(offset, str(OffsetMetadata(owner=ME)))
        return self.kafka.committed[A]


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("offset", [3, 5, 9])
def test_a_later_run_takes_the_partition_whatever_its_offset(later: Owner, offset: int) -> None:
    """Even with a smaller offset: it started at the last save, and later records come again."""
    harness = ClaimHarness(by(ME, 3))
    harness.save(4)
    harness.kafka.committed[A] = by(later, offset)

    with pytest.raises(Fenced, match="has taken the partition over"):
        harness.save(5)

    assert by(later, offset) == harness.kafka.committed[A]


@pytest.mark.parametrize("later", LATER)
def test_a_later_run_that_is_gone_keeps_nothing(later: Owner) -> None:
    """The driver decided that it is dead, so we start at its last save."""
    harness = ClaimHarness(by(later, 3))

    assert by(ME, 4) == harness.save(4)
    assert not harness.fences


@pytest.mark.parametrize("earlier", EARLIER)
def test_where_an_earlier_run_has_gone_on_we_go_on_from_there(earlier: Owner) -> None:
    """It had not seen our claim yet. It is fenced, and we are not."""
    harness = ClaimHarness(by(earlier, 3))
    harness.kafka.committed[A] = by(earlier, 6)

    with pytest.raises(Transient, match="has since committed 6"):
        harness.save(3)

    assert harness.fences
    assert by(ME, 7) == harness.save(7)


def test_a_larger_offset_of_another_program_is_named_as_such() -> None:
    """It bears no run's name. The partition skips what lies between, so the message says where it goes on."""
    harness = ClaimHarness(by(ME, 3))
    harness.kafka.committed[A] = CommittedOffset(6)

    with pytest.raises(
        Transient, match=r"^raw-0@4: another program has since committed 6; the partition goes on there$"
    ):
        harness.save(4)


@pytest.mark.parametrize("earlier", EARLIER)
def test_what_an_earlier_run_saves_behind_us_does_not_count(earlier: Owner) -> None:
    """Its request came late."""
    harness = ClaimHarness(by(earlier, 3))
    harness.save(5)
    harness.kafka.committed[A] = by(earlier, 4)

    assert by(ME, 6) == harness.save(6)


def test_another_task_of_this_run_that_is_further_goes_on() -> None:
    """One of the two is a zombie, and the offset must not go back."""
    harness = ClaimHarness(by(ME, 3))
    harness.kafka.committed[A] = by(ME, 9)

    with pytest.raises(Fenced, match="committed up to 9"):
        harness.save(5)


def test_a_start_is_saved_where_nothing_is_stored() -> None:
    """There is no owner to fence."""
    harness = ClaimHarness()

    assert not harness.fences
    assert by(ME, 4) == harness.save(4)


def test_a_policy_may_go_back() -> None:
    """And the next save continues from there."""
    harness = ClaimHarness(by(ME, 9))

    harness.claim.reset(4, str(OffsetMetadata(owner=ME)))

    assert by(ME, 5) == harness.save(5)


def test_what_is_no_offset_is_not_overwritten() -> None:
    """A corrupt offset needs an operator."""
    harness = ClaimHarness()
    harness.kafka.committed[A] = CommittedOffset.not_readable("x")

    with pytest.raises(CorruptOffset):
        harness.save(4)


@pytest.mark.parametrize("owner", [ME, *EARLIER, *LATER])
def test_what_it_begins_with_is_saved_unchanged(owner: Owner) -> None:
    """So nothing is written for a store that can be read but not written, and the partition changes no hands yet."""
    harness = ClaimHarness(by(owner, 3))
    assert by(owner, 3) == harness.kafka.committed.pop(A)

    harness.claim.begin(by(owner, 3), harness.fence)
    assert by(owner, 3) == harness.kafka.committed[A]

    harness.kafka.saves_left = 0
    with pytest.raises(Transient, match="may not have been stored"):
        harness.claim.begin(by(owner, 3), harness.fence)


def test_what_an_earlier_run_committed_before_its_fence_is_found() -> None:
    """Its transaction may end between our look and the fence. Its lines would come again."""
    harness = ClaimHarness()
    harness.kafka.committed[A] = by(EARLIER[0], 3)

    def end() -> None:
        harness.kafka.committed[A] = by(EARLIER[0], 6)

    with pytest.raises(Transient, match="has since committed 6"):
        harness.claim.begin(by(EARLIER[0], 3), end)


def test_a_store_that_does_not_answer_is_an_outage() -> None:
    """The lane tries again."""
    harness = ClaimHarness()
    harness.kafka.pending[A] = by(ME, 4)

    with pytest.raises(Transient, match="may not have been stored") as caught:
        harness.save(4)

    assert isinstance(caught.value.__cause__, Unreachable)


@pytest.mark.parametrize("transactional", [True, False])
def test_outside_kafka_the_store_itself_compares(*, transactional: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another owner may save between the load and the save, and there is no transaction to end."""
    harness = ClaimHarness(by(EARLIER[0], 3))
    saved: list[int] = []
    monkeypatch.setattr(harness.store, "transactional", transactional)
    monkeypatch.setattr(harness.store, "save", lambda _partition, offset, _metadata: saved.append(offset))

    harness.save(4)
    harness.claim.begin(by(EARLIER[0], 4), harness.fence)

    assert [4, 4] * (not transactional) == saved
    assert 1 + transactional == harness.fences
