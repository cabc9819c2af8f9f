"""What a task learns about a fenced partition from the offset committed there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from app.errors import NotAllowed, Unreachable
from app.executor.fences import PATIENCE_SECONDS, Fences
from app.model import CommittedOffset, Owner, Partition
from app.offsets.metadata import OffsetMetadata

A, B = Partition("raw", 0), Partition("raw", 1)
ME, LATER = Owner(5, "here", "clean", 2), Owner(4, "there", "clean", 3)


class FencesHarness:
    """Fences over an offset store that is a dict."""

    def __init__(self, *owners: Owner) -> None:
        self.now = 100.0
        self.trouble: Exception | None = None
        self.owners = dict(zip((A, B), owners, strict=False))
        self.fences = Fences(ME, self, lambda: self.now)  # type: ignore[arg-type]  # the one method that is used

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        assert stable  # the new owner's first commit may be under way
        if self.trouble is not None:
            raise self.trouble
        metadata = {each: str(OffsetMetadata(owner=owner)) for each, owner in self.owners.items()}
        return {each: CommittedOffset(7, metadata[each]) for each in partitions if each in metadata}


def test_a_later_generation_takes_one_partition() -> None:
    """The task continues with the others."""
    harness = FencesHarness(LATER, ME)

    harness.fences.look(A, once=True)

    assert {A} == harness.fences.taken
    assert not harness.fences.end_the_task


@pytest.mark.parametrize("owners", [(ME,), (Owner(9, "there", "clean", 2),), (Owner(9, "there", "clean", 1),), ()])
def test_the_fence_of_the_driver_ends_the_task(owners: tuple[Owner, ...]) -> None:
    """On the control partition one look is enough, also if a service of the same generation has fenced it."""
    harness = FencesHarness(*owners)

    harness.fences.look(A, once=True)

    assert harness.fences.end_the_task
    assert not harness.fences.taken


def test_a_later_generation_has_a_moment_for_its_first_commit() -> None:
    """A partition other than the control partition was fenced, so the task looks again before it ends."""
    harness = FencesHarness(ME, ME)
    harness.fences.look(B, once=False)
    harness.now += PATIENCE_SECONDS - 0.1
    harness.fences.look(B, once=False)
    assert not harness.fences.end_the_task

    harness.owners[B] = LATER
    harness.fences.look(B, once=False)

    assert {B} == harness.fences.taken
    assert not harness.fences.end_the_task


def test_that_moment_ends() -> None:
    """The new owner of the partition never commits."""
    harness = FencesHarness(ME, ME)
    harness.fences.look(B, once=False)

    harness.now += PATIENCE_SECONDS
    harness.fences.look(B, once=False)

    assert harness.fences.end_the_task


@pytest.mark.parametrize("trouble", [Unreachable("away"), NotAllowed("no")])
def test_where_nobody_answers_the_task_ends(trouble: Exception) -> None:
    """Like any other fence: the driver plans again."""
    harness = FencesHarness(LATER)
    harness.trouble = trouble

    harness.fences.look(A, once=True)

    assert harness.fences.end_the_task
