"""Whether the service runs is found out before offsets are set, and once more afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.errors import ForeignMember, NotUsable
from app.model import CommittedOffset, Owner, Partition
from app.offsets.metadata import OffsetMetadata
from app.operate.running import refuse_overwritten, refuse_running_service
from tests.fakes.driver import DriverKafka

A = Partition("raw", 0)
BY_HOST = str(OffsetMetadata("id-1", 0, owner=Owner(5_000, "there", "clean")))


def kafka_at(offset: int, metadata: str = "") -> DriverKafka:
    kafka = DriverKafka(p0=(0, 100))
    kafka.committed[A] = CommittedOffset(offset, metadata)
    return kafka


def test_nothing_moves_and_nobody_commits() -> None:
    """A service that is stopped lets offsets be set."""
    refuse_running_service(kafka_at(5).clients, [A], lambda _seconds: None)


@pytest.mark.parametrize(("offset", "metadata"), [(6, ""), (5, BY_HOST)], ids=["offset", "metadata"])
def test_an_offset_that_moves(offset: int, metadata: str) -> None:
    """The next commit would win: the error says where it was seen."""
    kafka = kafka_at(5)

    def work(_seconds: float) -> None:
        kafka.committed[A] = CommittedOffset(offset, metadata)

    with pytest.raises(NotUsable, match="runs: it has committed raw-0 while we looked: stop it"):
        refuse_running_service(kafka.clients, [A], work)


def test_an_idle_service_that_renews_an_offset() -> None:
    """Nothing changes, and yet somebody has committed; the metadata names who."""
    with pytest.raises(NotUsable, match=r"the service on there that started at .* runs: it has committed raw-0"):
        refuse_running_service(kafka_at(5, BY_HOST).clients, [A], lambda _seconds: A)


def test_a_member_of_the_group() -> None:
    """A foreign consumer is refused before anything is watched."""
    kafka = kafka_at(5)

    def members() -> None:
        raise ForeignMember("group has members", "stop them")

    kafka.refuse_foreign_members = members  # type: ignore[method-assign]

    with pytest.raises(ForeignMember):
        refuse_running_service(kafka.clients, [A], _never)


def _never(_seconds: float) -> Partition | None:
    raise AssertionError


@pytest.mark.parametrize(
    ("found", "there"),
    [(CommittedOffset(70, BY_HOST), "70"), (CommittedOffset(7, BY_HOST), "7"), (None, "nothing")],
    ids=["another offset", "another metadata", "none"],
)
def test_an_offset_that_is_written_over(found: CommittedOffset | None, there: str) -> None:
    """A service that no other sign has told of is told of by its next commit."""
    kafka, set_to = kafka_at(7), {A: CommittedOffset(7)}

    with pytest.raises(NotUsable, match=f"runs: raw-0 was set to 7, and now {there} stands there"):
        refuse_overwritten(kafka.clients, set_to, _writing(kafka, found))


def _writing(kafka: DriverKafka, found: CommittedOffset | None) -> Callable[[float], object]:
    def write(_seconds: float) -> None:
        kafka.committed = {} if found is None else {A: found}

    return write


def test_an_offset_that_stands() -> None:
    """Nobody has written over it."""
    refuse_overwritten(kafka_at(7).clients, {A: CommittedOffset(7)}, lambda _seconds: None)
