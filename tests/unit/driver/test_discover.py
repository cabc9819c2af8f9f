"""What discovery makes of partitions that cannot be read: they wait, and the others go on."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from app.config import FromTimestamp
from app.driver.discover import BLOCKED_SECONDS, Discovery
from app.errors import Leaderless, OffsetVanished, TopicRecreated, Unreachable
from app.model import CommittedOffset, Outcome, Partition, Receipt, Watermarks
from app.runtime import Runtime
from tests.fakes.driver import DriverKafka
from tests.unit.driver.test_service import config

A, B = Partition("raw", 0), Partition("raw", 1)


def lose(kafka: DriverKafka, partition: Partition, how: str) -> None:
    """Take a partition's leader away: the topic's description says so, or it only does not answer."""
    if how == "leaderless":
        kafka.leaderless.add(partition.number)
    kafka.silent.add(partition)


@pytest.mark.parametrize("how", ["leaderless", "silent"])
def test_one_partition_without_a_leader_blocks_only_itself(how: str) -> None:
    """The others are planned; it is planned as soon as it answers, where its group's offset says."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.committed[B] = CommittedOffset(4)
    lose(kafka, B, how)
    discovery = Discovery(config(), kafka.clients)

    without = discovery.discover()
    kafka.leaderless, kafka.silent = set(), set()
    healed = discovery.discover()

    assert ([A], [B]) == (list(without.ranges), list(without.blocked))
    assert isinstance(without.blocked[B], Leaderless)
    assert "bring its broker back" in without.blocked[B].cure
    assert {A: 0, B: 4} == {partition: each.start for partition, each in healed.ranges.items()}
    assert not healed.blocked


def test_a_known_partition_that_loses_its_leader_is_not_gone() -> None:
    """Its topic exists, and nobody needs to create it again."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    discovery = Discovery(config(), kafka.clients)
    discovery.discover()
    lose(kafka, B, "leaderless")

    assert {B: Leaderless} == {partition: type(error) for partition, error in discovery.discover().blocked.items()}


def test_a_partition_that_was_leaderless_at_the_start_has_not_joined_later() -> None:
    """It starts where starting.offsets says; one that is created while the service runs starts at its beginning."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    lose(kafka, B, "leaderless")
    discovery = Discovery(config("starting.offsets=latest"), kafka.clients)
    discovery.discover()
    kafka.leaderless, kafka.silent = set(), set()

    assert 10 == discovery.discover().ranges[B].start


def test_a_partition_that_joined_leaderless_starts_at_its_beginning() -> None:
    """It is younger than the service, whenever it can be read first."""
    kafka = DriverKafka(p0=(0, 10))
    discovery = Discovery(config("starting.offsets=latest"), kafka.clients)
    discovery.discover()
    kafka.watermark[B] = (0, 10)
    lose(kafka, B, "leaderless")
    discovery.discover()
    kafka.leaderless, kafka.silent = set(), set()

    assert 0 == discovery.discover().ranges[B].start


def test_a_start_by_time_that_cannot_be_read_is_waited_for() -> None:
    """It must not pass for a time after the last record: the records since then would be skipped."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.offsets_at = lambda partitions, milliseconds: {A: 5}  # type: ignore[method-assign]
    by_time = config().model_copy(update={"starting_offsets": FromTimestamp(timestamp=1_000)})
    discovery = Discovery(by_time, kafka.clients)

    found = discovery.discover()

    assert {A: 5} == {partition: each.start for partition, each in found.ranges.items()}
    assert isinstance(found.blocked[B], Leaderless)


def test_a_cluster_without_any_leader_is_an_outage() -> None:
    """One line says that Winnow waits, not one for each partition."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    for partition in (A, B):
        lose(kafka, partition, "leaderless")

    with pytest.raises(Unreachable, match="no source partition has a leader"):
        Discovery(config(), kafka.clients).discover()


def test_a_refresh_keeps_the_last_known_offsets() -> None:
    """A partition that cannot be read now has not gone; one that was never read stays away."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10), p2=(0, 10))
    never = Partition("raw", 2)
    lose(kafka, never, "leaderless")
    discovery = Discovery(config(), kafka.clients)
    before = discovery.discover().offsets
    lose(kafka, B, "silent")
    kafka.watermark[A] = (0, 20)

    for _ in range(2):
        survey = discovery.refresh()

        assert {B, never} == survey.unreadable
        assert {A, B} == survey.offsets.keys()
        assert before[B] == survey.offsets[B]
        assert 20 == survey.offsets[A].watermarks.high_watermark


class Moving(DriverKafka):
    """A Kafka in which a producer writes and a task commits, with every request of the driver."""

    def _goes_on(self) -> None:
        end = self.watermark[A][1] + 10
        self.watermark[A] = (0, end)
        self.committed[A] = CommittedOffset(end)

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
        found = super().watermarks(partitions)
        self._goes_on()
        return found

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        found = super().load(partitions, stable=stable)
        self._goes_on()
        return found


def test_an_offset_that_moves_meanwhile_does_not_look_out_of_range() -> None:
    """The end is asked last, so that no offset is committed after it that lies beyond it."""
    discovery = Discovery(config(), Moving(p0=(0, 100)).clients)

    assert not discovery.discover().blocked
    for at in discovery.refresh().offsets.values():
        assert at.committed is not None
        assert at.committed.offset <= at.watermarks.high_watermark


class TestBlockedByATask:
    """A task found that a partition waits for a person: the plan leaves it out, so that it costs the others nothing."""

    FOUND = Receipt(B, 0, 4, outcome=Outcome.BLOCKED, error="the broker refuses it", cure="raise its limit")

    def test_it_stays_blocked_where_its_offset_stands(self) -> None:
        """The error names the offset and the cure, at each discovery."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed[B] = CommittedOffset(4)
        discovery = Discovery(config(), kafka.clients)
        discovery.discover()

        discovery.reported([self.FOUND])

        for _ in range(2):
            found = discovery.discover()
            assert [A] == list(found.ranges)
            assert "raw-1@4: the broker refuses it: raise its limit" == str(found.blocked[B])

    def test_it_is_tried_again_as_soon_as_its_offset_is_moved(self) -> None:
        """A person has acted; what was found is forgotten, also where the offset comes back later."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        discovery = Discovery(config(), kafka.clients)
        discovery.reported([self.FOUND])

        for offset in (5, 4):
            kafka.committed[B] = CommittedOffset(offset)
            assert offset == discovery.discover().ranges[B].start

    def test_it_is_tried_again_after_a_while(self) -> None:
        """The cause may be mended in Kafka, where Winnow does not see it."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed[B] = CommittedOffset(4)
        now = 100.0
        discovery = Discovery(config(), kafka.clients, Runtime(monotonic=lambda: now))
        discovery.reported([self.FOUND])
        assert [B] == list(discovery.discover().blocked)

        now += BLOCKED_SECONDS

        assert not discovery.discover().blocked


@pytest.mark.parametrize("seen_by", ["discover", "refresh"])
@pytest.mark.parametrize("metadata", ["", "winnow topic=id-1"])
@pytest.mark.parametrize(("topic_id", "error"), [("id-1", OffsetVanished), ("id-2", TopicRecreated)])
def test_an_offset_that_was_seen_is_remembered(seen_by: str, metadata: str, topic_id: str, error: type) -> None:
    """It was there at one look, whoever committed it, and is gone at the next: that is no first start."""
    kafka = DriverKafka(p0=(0, 10))
    discovery = Discovery(config(), kafka.clients)
    if seen_by == "refresh":
        discovery.discover()
    kafka.committed[A] = CommittedOffset(5, metadata)
    discovery.discover() if seen_by == "discover" else discovery.refresh()
    del kafka.committed[A]
    kafka.topic_id = topic_id

    assert {A: error} == {partition: type(each) for partition, each in discovery.discover().blocked.items()}
