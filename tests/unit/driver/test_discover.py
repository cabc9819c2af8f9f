"""Discovery of partitions that cannot be read: they wait, and the others continue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from app.config import Config, FromTimestamp
from app.driver.discover import BLOCKED_SECONDS, Discovery
from app.driver.starting_offsets import rewound, skipped
from app.driver.workload import Workload
from app.errors import (
    CorruptOffset,
    ForeignSink,
    Leaderless,
    OffsetLeftBehind,
    OffsetVanished,
    Superseded,
    TopicRecreated,
    Truncated,
    Unreachable,
)
from app.model import CommittedOffset, LastRead, Outcome, Owner, Partition, Receipt, Watermarks
from app.offsets.contract import StoreContext
from app.offsets.metadata import Counts, OffsetMetadata
from app.offsets.mirrors import Mirrors, MirrorStatus
from app.offsets.none import NoOffsets
from app.runtime import REAL, Runtime
from tests.fakes.driver import DriverKafka, config

A, B = Partition("raw", 0), Partition("raw", 1)


def lose(kafka: DriverKafka, partition: Partition, how: str) -> None:
    """Take a partition's leader away; the topic's description shows it, or the partition just does not respond."""
    if how == "leaderless":
        kafka.leaderless.add(partition.number)
    kafka.silent.add(partition)


@pytest.mark.parametrize("how", ["leaderless", "silent"])
def test_one_partition_without_a_leader_blocks_only_itself(how: str) -> None:
    """The others are planned. Once it responds, it is planned at its group's offset."""
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
    """Its topic exists, so it need not be recreated."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    discovery = Discovery(config(), kafka.clients)
    discovery.discover()
    lose(kafka, B, "leaderless")

    assert {B: Leaderless} == {partition: type(error) for partition, error in discovery.discover().blocked.items()}


def test_a_partition_that_was_leaderless_at_the_start_has_not_joined_later() -> None:
    """It starts at starting.offsets, but one created while the service runs starts at its beginning."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    lose(kafka, B, "leaderless")
    discovery = Discovery(config("starting.offsets=latest"), kafka.clients)
    discovery.discover()
    kafka.leaderless, kafka.silent = set(), set()

    assert 10 == discovery.discover().ranges[B].start


def test_a_partition_that_joined_leaderless_starts_at_its_beginning() -> None:
    """It is younger than the service, however late it can be read."""
    kafka = DriverKafka(p0=(0, 10))
    discovery = Discovery(config("starting.offsets=latest"), kafka.clients)
    discovery.discover()
    kafka.watermark[B] = (0, 10)
    lose(kafka, B, "leaderless")
    discovery.discover()
    kafka.leaderless, kafka.silent = set(), set()

    assert 0 == discovery.discover().ranges[B].start


@pytest.mark.parametrize("how", ["leaderless", "silent"])
def test_a_partition_that_was_added_while_its_siblings_cannot_be_read(how: str) -> None:
    """The group's offsets show that it has worked on the topic, even without leaders, so no record is skipped."""
    kafka = DriverKafka(p0=(0, 10), p1=(3, 9))
    kafka.committed[A] = CommittedOffset(7, OURS)
    lose(kafka, A, how)

    assert {B: 3} == starts(Discovery(config("starting.offsets=latest"), kafka.clients).discover())


def test_an_offset_of_a_partition_that_cannot_be_read_is_remembered() -> None:
    """If the offset is gone when the leader is back, it has vanished; this is not a first start."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.committed[B] = CommittedOffset(4, OURS)
    lose(kafka, B, "leaderless")
    discovery = Discovery(config(), kafka.clients)

    assert {B: CommittedOffset(4, OURS), A: None} == discovery.discover().committed
    kafka.leaderless, kafka.silent = set(), set()
    del kafka.committed[B]

    assert isinstance(discovery.discover().blocked[B], OffsetVanished)


def test_a_topic_that_only_a_pattern_found_may_go() -> None:
    """The configuration does not name it, so it is not missed. A named topic blocks its partitions."""
    for settings, blocked in ((config(), [A]), (by_pattern(), [])):
        kafka = DriverKafka(p0=(0, 10))
        discovery = Discovery(settings, kafka.clients)
        discovery.discover()
        kafka.topic_gone = True

        assert blocked == list(discovery.discover().blocked)


def by_pattern(*assignments: str) -> Config:
    """Return a configuration that finds the topic `raw` by a pattern only."""
    found = config(*assignments)
    return found.model_copy(update={"source": found.source.model_copy(update={"topics": (), "topics_pattern": "ra."})})


class TestATopicThatGoes:
    """Kafka deletes its offset with it. Later there may be a new topic of the same name."""

    def goes(
        self,
        settings: Config,
        committed: CommittedOffset | None,
        *,
        reported: Sequence[Receipt] = (),
        stays: bool = False,
    ) -> tuple[Discovery, DriverKafka]:
        """Look at the topic, get the reports of its tasks, and look when it is gone, but its offset perhaps `stays`."""
        kafka = DriverKafka(p0=(0, 10))
        kafka.committed = {A: committed} if committed else {}
        discovery = Discovery(settings, kafka.clients)
        discovery.discover()
        discovery.reported(reported)
        kafka.topic_gone, kafka.committed = True, kafka.committed if stays else {}
        discovery.discover()
        return discovery, kafka

    def comes_back(self, discovery: Discovery, kafka: DriverKafka) -> Workload:
        kafka.topic_gone, kafka.topic_id = False, "id-2"
        return discovery.discover()

    def test_and_was_found_by_a_pattern_is_forgotten(self) -> None:
        """Topics may come and go for ever. Here the log ended below the offset."""
        discovery, _ = self.goes(by_pattern(), CommittedOffset(14, OURS))

        assert not discovery._newcomers.known
        assert not discovery._newcomers._new
        assert not discovery._had_offset_in
        assert not discovery._cuts
        assert not discovery.owners._seen

    def test_and_was_found_by_a_pattern_is_another_one_when_it_comes_back(self) -> None:
        """It is read from its beginning, like any topic that joins."""
        found = self.comes_back(*self.goes(by_pattern("starting.offsets=latest"), CommittedOffset(4, OURS)))

        assert not found.blocked
        assert 0 == found.ranges[A].start

    def test_and_was_blocked_is_not_blocked_when_it_comes_back(self) -> None:
        """A task stopped at its first record, so the offset is the same as without one."""
        text = str(OffsetMetadata("id-1", 0, blocked="too many dead letters", tripped=True))
        blocked = Receipt(A, 0, 0, outcome=Outcome.BLOCKED, error="too many dead letters", metadata=text, tripped=True)

        assert {A: 0} == starts(self.comes_back(*self.goes(by_pattern(), CommittedOffset(0, text), reported=[blocked])))

    def test_before_a_look_has_seen_its_offset_is_another_one_when_it_comes_back(self) -> None:
        """Only its task has told the offset, which could be pending."""
        done = Receipt(A, 0, 4, records=4, out=4, outcome=Outcome.DONE, metadata=OURS)

        assert {A: 0} == starts(self.comes_back(*self.goes(by_pattern(), None, reported=[done])))

    def test_but_not_its_offset_is_told_when_it_comes_back(self) -> None:
        """Another cluster or store does not delete the offset with the topic."""
        found = self.comes_back(*self.goes(by_pattern(), CommittedOffset(4, OURS), stays=True))

        assert isinstance(found.blocked[A], TopicRecreated)

    def test_and_is_named_is_told_when_it_comes_back(self) -> None:
        found = self.comes_back(*self.goes(config("starting.offsets=latest"), CommittedOffset(4, OURS)))

        assert isinstance(found.blocked[A], TopicRecreated)

    def test_and_never_had_an_offset_is_not_new_when_it_comes_back(self) -> None:
        """A broker may just not have listed it, so `starting.offsets` decides as before."""
        assert 10 == self.comes_back(*self.goes(by_pattern("starting.offsets=latest"), None)).ranges[A].start


def test_a_start_by_time_that_cannot_be_read_is_waited_for() -> None:
    """Treating it as a time after the last record would skip the records since then."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.offsets_at = lambda partitions, milliseconds: {A: 5}  # type: ignore[method-assign]
    by_time = config().model_copy(update={"starting_offsets": FromTimestamp(timestamp=1_000)})
    discovery = Discovery(by_time, kafka.clients)

    found = discovery.discover()

    assert {A: 5} == {partition: each.start for partition, each in found.ranges.items()}
    assert isinstance(found.blocked[B], Leaderless)


def test_only_where_a_time_decides_it_is_looked_up() -> None:
    """No time is looked up for a partition with an offset, nor for a new one, which starts at its beginning."""
    kafka, asked = DriverKafka(p0=(0, 10), p1=(0, 10)), list[list[Partition]]()
    kafka.committed[A] = CommittedOffset(4)

    def offsets_at(partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int | None]:
        asked.append(list(partitions))
        return dict.fromkeys(asked[-1], 5)

    kafka.offsets_at = offsets_at  # type: ignore[method-assign]
    discovery = Discovery(config("starting.offsets.timestamp=1"), kafka.clients)
    discovery.discover()
    kafka.watermark[Partition("raw", 2)] = (0, 10)
    discovery.discover()

    assert [[B], [B]] == asked


def test_a_cluster_without_any_leader_is_an_outage() -> None:
    """One line says that Winnow waits, rather than one for each partition."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    for partition in (A, B):
        lose(kafka, partition, "leaderless")

    with pytest.raises(Unreachable, match="no source partition has a leader"):
        Discovery(config(), kafka.clients).discover()


def test_a_refresh_keeps_the_last_known_offsets() -> None:
    """A partition that cannot be read now still exists; one that was never read stays unknown."""
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
    """A Kafka in which a producer writes and a task commits with every request of the driver."""

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
    """The end is read last, so no offset can be committed beyond it afterwards."""
    discovery = Discovery(config(), Moving(p0=(0, 100)).clients)

    assert not discovery.discover().blocked
    for at in discovery.refresh().offsets.values():
        assert at.committed is not None
        assert at.committed.offset <= at.watermarks.high_watermark


def test_only_a_discovery_waits_for_stable_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """It decides where tasks start. A refresh runs during hundreds of commits, and might wait for one of them."""
    kafka, waits = DriverKafka(p0=(0, 10)), list[bool]()
    discovery = Discovery(config(), kafka.clients)

    def load(partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        waits.append(stable)
        return {}

    monkeypatch.setattr(kafka, "load", load)
    discovery.discover()
    discovery.refresh()

    assert [True, False] == waits


@pytest.mark.parametrize("transactional", [True, False])
def test_an_offset_that_is_pending_for_ever_is_planned_as_it_was(
    monkeypatch: pytest.MonkeyPatch, *, transactional: bool
) -> None:
    """The task that opens the partition ends the transaction. A store without transactions counts as unreachable."""
    kafka = DriverKafka(p0=(0, 10))

    def load(partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        if stable:
            raise Unreachable("timed out")
        return dict.fromkeys(partitions, CommittedOffset(3))

    monkeypatch.setattr(kafka, "load", load)
    monkeypatch.setattr(kafka, "transactional", transactional)
    discovery = Discovery(config(), kafka.clients)
    if transactional:
        (planned,) = discovery.discover().ranges.values()

        assert (3, 3) == (planned.committed, planned.start)
    else:
        with pytest.raises(Unreachable):
            discovery.discover()


def test_another_sink_shows_on_a_partition_that_cannot_be_read() -> None:
    """Two services must not split the records because a leader is missing when one of them starts."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.committed[B] = CommittedOffset(4, str(OffsetMetadata(owner=Owner(5, "there", "elsewhere"))))
    lose(kafka, B, "leaderless")

    with pytest.raises(ForeignSink, match="writes to elsewhere"):
        Discovery(config(), kafka.clients).discover()


class TestBlockedByATask:
    """A task reported a blocked partition: the plan leaves it out, so it costs the others nothing."""

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

    @pytest.mark.parametrize("first", [0, 5])
    def test_it_stays_blocked_where_it_has_no_offset_yet(self, first: int) -> None:
        """The task blocked before it could commit the partition's start."""
        kafka = DriverKafka(p0=(0, 10), p1=(first, 10))
        discovery = Discovery(config(), kafka.clients)

        discovery.reported([replace(self.FOUND, start=first, end=first)])

        assert [B] == list(discovery.discover().blocked)

    def test_it_is_tried_again_where_its_offset_is_deleted(self) -> None:
        """The operator has acted, so the report is forgotten."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed[B] = CommittedOffset(4)
        discovery = Discovery(config(), kafka.clients)
        discovery.discover()
        discovery.reported([self.FOUND])

        del kafka.committed[B]

        assert "refuses" not in str(discovery.discover().blocked.get(B))

    def test_it_is_tried_again_as_soon_as_its_offset_is_moved(self) -> None:
        """The operator has acted, so the report is forgotten, even if the offset returns to its old value."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        discovery = Discovery(config(), kafka.clients)
        discovery.reported([self.FOUND])

        for offset in (5, 4):
            kafka.committed[B] = CommittedOffset(offset)
            assert offset == discovery.discover().ranges[B].start

    def test_it_is_tried_again_after_a_while(self) -> None:
        """The cause may have been fixed in Kafka, where Winnow does not see it."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed[B] = CommittedOffset(4)
        now = 100.0
        discovery = Discovery(config(), kafka.clients, Runtime(monotonic=lambda: now))
        discovery.reported([self.FOUND])
        assert [B] == list(discovery.discover().blocked)

        now += BLOCKED_SECONDS

        assert not discovery.discover().blocked

    def test_after_too_many_dead_letters_it_waits_for_a_person(self) -> None:
        """A new task would drain more records. Only a moved offset or a restart unblocks it."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        kafka.committed[B] = CommittedOffset(4)
        now = 100.0
        discovery = Discovery(config(), kafka.clients, Runtime(monotonic=lambda: now))
        discovery.reported([replace(self.FOUND, tripped=True)])

        now += 1_000 * BLOCKED_SECONDS

        assert [B] == list(discovery.discover().blocked)
        kafka.committed[B] = CommittedOffset(5)
        assert not discovery.discover().blocked

    @pytest.mark.parametrize("told", [True, False])
    def test_it_is_tried_again_where_an_operator_set_its_offset_to_itself(self, told: bool) -> None:
        """The task stores why it is blocked, in the name of this run. An operator's offset names none."""
        kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
        set_to_itself = CommittedOffset(4, OffsetMetadata.restarting(CommittedOffset(4, OURS), 4, "id-1"))
        kafka.committed[B] = set_to_itself  # an earlier time
        discovery = Discovery(config(), kafka.clients)
        discovery.discover()
        ours = OffsetMetadata("id-1", 4, owner=discovery.owner)
        if told:
            kafka.committed[B] = CommittedOffset(4, str(replace(ours, blocked="too many", tripped=True)))
        discovery.reported([replace(self.FOUND, metadata=str(ours), tripped=True)])
        for _ in range(2):
            assert [B] == list(discovery.discover().blocked)

        kafka.committed[B] = set_to_itself

        assert told == (B in discovery.discover().ranges)


OURS = str(OffsetMetadata("id-1", 0, Counts(7, 7)))
CUT = str(OffsetMetadata("id-1", 0, Counts(7, 7), cut=900))
FOUND = Receipt(A, 1_000, 1_000, outcome=Outcome.BLOCKED, error="cut", metadata=CUT)
STARTS = [
    "starting.offsets=latest",
    "starting.offsets=error",
    "starting.offsets.timestamp=1",
    "starting.offsets.by.duration=2h",
]


def starts(found: Workload) -> dict[Partition, int]:
    return {partition: each.start for partition, each in found.ranges.items()}


class TestNewPartitions:
    @pytest.mark.parametrize("starting", STARTS)
    def test_a_partition_that_was_added_while_the_service_was_stopped(self, starting: str) -> None:
        """A sibling's offset shows that the group has begun, so starting.offsets does not apply."""
        kafka = DriverKafka(p0=(0, 10), p1=(3, 9))
        kafka.committed[A] = CommittedOffset(7, OURS)

        found = Discovery(config(starting), kafka.clients).discover()

        assert {A: 7, B: 3} == starts(found)

    @pytest.mark.parametrize("metadata", ["", "kafka-consumer-groups", str(OffsetMetadata("another", 0, Counts(7, 7)))])
    def test_an_offset_that_a_task_did_not_commit_is_no_witness(self, metadata: str) -> None:
        """An operator may set offsets before the first start, and a deleted topic says nothing about this one."""
        kafka = DriverKafka(p0=(0, 10), p1=(3, 9))
        kafka.committed[A] = CommittedOffset(7, metadata)

        found = Discovery(config("starting.offsets=latest"), kafka.clients).discover()

        assert 9 == starts(found)[B]

    def test_a_first_start_that_has_stored_only_some_offsets_goes_on_as_it_began(self) -> None:
        """A partition that existed at the start is not new, even if its siblings commit first."""
        kafka = DriverKafka(p0=(0, 10), p1=(3, 9))
        discovery = Discovery(config("starting.offsets=latest"), kafka.clients)
        discovery.discover()
        kafka.committed[A] = CommittedOffset(10, OURS)

        assert 9 == starts(discovery.discover())[B]

    @pytest.mark.parametrize(("now", "start"), [((0, 15), 10), ((12, 15), 12), ((0, 8), 8)])
    def test_latest_is_what_it_was_at_the_start(self, now: tuple[int, int], start: int) -> None:
        """A busy machine may end a round before its tasks commit. Records that arrive meanwhile are not skipped."""
        kafka = DriverKafka(p0=(0, 10))
        discovery = Discovery(config("starting.offsets=latest"), kafka.clients)
        discovery.discover()
        kafka.watermark[A] = now

        assert start == starts(discovery.discover())[A]

    def test_latest_is_told_anew_for_a_topic_that_was_created_again(self) -> None:
        """Its offsets have nothing to do with those of the old topic."""
        kafka = DriverKafka(p0=(5, 10))
        discovery = Discovery(config("starting.offsets=latest"), kafka.clients)
        discovery.discover()
        kafka.topic_id, kafka.watermark[A] = "id-2", (0, 20)

        assert 20 == starts(discovery.discover())[A]

    def test_a_partition_that_joined_later_is_read_from_its_beginning(self) -> None:
        """It stays new until a task has stored its start, however many attempts that takes."""
        kafka = DriverKafka(p0=(0, 10))
        discovery = Discovery(config("starting.offsets=latest"), kafka.clients)
        discovery.discover()
        kafka.watermark[B] = (3, 9)

        assert 3 == starts(discovery.discover())[B]
        assert 3 == starts(discovery.discover())[B]


def test_a_duration_counts_from_the_first_discovery() -> None:
    """All partitions start at the same time, however late it is resolved for some."""
    kafka, now = DriverKafka(p0=(0, 10)), 10_000.0
    runtime = replace(REAL, wall_clock=lambda: now)
    discovery = Discovery(config("starting.offsets.by.duration=2h"), kafka.clients, runtime)

    found = discovery.discover()
    now = 20_000.0
    discovery.discover()

    assert {A: 5} == starts(found)
    assert [2_800_000, 2_800_000] == kafka.asked_for_time


@pytest.mark.parametrize("then", [None, 40], ids=["all older", "younger ones follow"])
@pytest.mark.parametrize(("now", "start"), [((0, 60), 10), ((12, 60), 12), ((0, 8), 8)])
def test_a_time_after_the_last_record_is_the_end_as_it_was_at_the_start(
    then: int | None, now: tuple[int, int], start: int
) -> None:
    """Records that arrive before the first commit are read, even if they are older than that time."""
    kafka, answers = DriverKafka(p0=(0, 10)), iter([None, then])
    kafka.offsets_at = lambda partitions, milliseconds: {A: next(answers)}  # type: ignore[method-assign]
    discovery = Discovery(config("starting.offsets.by.duration=2h"), kafka.clients)

    before = discovery.discover()
    kafka.watermark[A] = now
    after = discovery.discover()

    assert [{A: 10}, {A: start}] == [starts(before), starts(after)]


def test_a_duration_longer_than_the_epoch_is_the_epoch() -> None:
    """Kafka gives negative times another meaning."""
    kafka = DriverKafka(p0=(0, 10))
    runtime = replace(REAL, wall_clock=lambda: 100.0)

    Discovery(config("starting.offsets.by.duration=2h"), kafka.clients, runtime).discover()

    assert [0] == kafka.asked_for_time


class TestCuts:
    """A partition with the committed offset 1000 whose log is truncated to 900."""

    @pytest.fixture(autouse=True)
    def _cut(self) -> None:
        self.kafka = DriverKafka(p0=(0, 900), p1=(0, 10))
        self.kafka.committed = {A: CommittedOffset(1_000, OURS), B: CommittedOffset(10, OURS)}

    def discovery(self, *settings: str) -> Discovery:
        return Discovery(config(*settings), self.kafka.clients)

    def grow(self) -> None:
        self.kafka.watermark[A] = (0, 1_100)

    def test_it_stays_blocked_after_it_has_grown_again(self) -> None:
        """Offsets 900 to 999 hold new records, which would be skipped silently if the partition unblocked by itself."""
        discovery = self.discovery()
        before = discovery.discover().blocked
        self.grow()
        after = discovery.discover()

        assert str(before[A]) == str(after.blocked[A])
        assert isinstance(after.blocked[A], Truncated)
        assert {B: 10} == starts(after)

    @pytest.mark.parametrize(
        ("found", "cuts"), [((890, 890), (890, 890)), ((890, 870), (890, 870)), ((None,) * 2, (900,) * 2)]
    )
    def test_the_leader_epoch_tells_where_it_was_cut(self, found: Sequence[int | None], cuts: Sequence[int]) -> None:
        """It may have grown before the first look, and is perhaps cut again. Without an answer, its lowest end counts."""
        last, asked = LastRead(1_000, 3), list[tuple[Partition, LastRead]]()

        def find_cut(partition: Partition, last: LastRead) -> int | None:
            asked.append((partition, last))
            return found[len(asked) - 1]

        self.kafka.committed[A] = CommittedOffset(1_000, str(OffsetMetadata("id-1", 0, Counts(7, 7), read=last)))
        discovery = Discovery(config("out.of.range=nearest"), replace(self.kafka.clients, find_cut=find_cut))

        for cut in cuts:
            assert {A: cut, B: 10} == starts(discovery.discover())
            discovery.refresh()
            self.grow()
        assert [(A, last), (A, last)] == asked

    def test_without_an_answer_about_its_cut_only_that_partition_waits(self) -> None:
        """From its lowest known end, records of the new log might be skipped."""

        def find_cut(partition: Partition, last: LastRead) -> int | None:
            raise Unreachable(f"{partition} does not answer {last}")

        metadata = OffsetMetadata("id-1", 0, Counts(7, 7), read=LastRead(1_000, 3))
        self.kafka.committed[A] = CommittedOffset(1_000, str(metadata))

        found = Discovery(config("out.of.range=nearest"), replace(self.kafka.clients, find_cut=find_cut)).discover()

        assert {B: 10} == starts(found)
        assert isinstance(found.blocked[A], Leaderless)

    def test_a_cut_that_a_check_has_seen_counts(self) -> None:
        """By the end of the running round's tasks, the partition may have grown again."""
        self.kafka.watermark[A] = (0, 1_000)
        discovery = self.discovery()
        discovery.discover()
        self.kafka.watermark[A] = (0, 900)
        discovery.refresh()
        self.grow()

        assert {A} == discovery.discover().blocked.keys()

    @pytest.mark.parametrize("offset", [900, 1_000])
    def test_an_operator_unblocks_it(self, offset: int) -> None:
        """An offset set by an operator is trusted, even if it is the old one."""
        discovery = self.discovery()
        discovery.discover()
        self.grow()
        self.kafka.committed[A] = CommittedOffset(offset)

        assert {A: offset, B: 10} == starts(discovery.discover())

    def test_a_cut_that_a_task_found_counts(self) -> None:
        """The partition grew again before the driver looked. The task saw the cut by the stored leader epoch."""
        self.grow()
        discovery = self.discovery()
        assert {A: 1_000, B: 10} == starts(discovery.discover())

        self.kafka.committed[A] = CommittedOffset(1_000, CUT)
        discovery.reported([FOUND])

        for _ in range(2):
            assert str(Truncated(A, 1_000, 900)) == str(discovery.discover().blocked[A])

    def test_what_a_task_found_is_forgotten_where_the_offset_was_set_meanwhile(self) -> None:
        """The operator set the offset before the driver saw the report."""
        self.grow()
        discovery = self.discovery()
        discovery.discover()
        discovery.reported([FOUND])
        self.kafka.committed[A] = CommittedOffset(950)

        assert {A: 950, B: 10} == starts(discovery.discover())

    @pytest.mark.parametrize(
        ("policy", "start", "again", "lost"),
        [
            ("nearest", 900, (900, 1_000), None),
            ("earliest", 0, (0, 1_000), None),
            ("latest", 1_100, None, (900, 1_100)),
        ],
    )
    def test_a_policy_goes_on_from_a_cut(
        self, policy: str, start: int, again: tuple[int, int] | None, lost: tuple[int, int] | None
    ) -> None:
        """The offsets that are read again or skipped are reported."""
        self.grow()
        discovery = self.discovery(f"out.of.range={policy}")
        self.kafka.committed[A] = CommittedOffset(1_000, CUT)
        discovery.reported([FOUND])

        found = discovery.discover()

        assert start == starts(found)[A]
        assert (again, lost) == (rewound(found.ranges[A]), skipped(found.ranges[A]))


def test_a_fence_that_the_driver_did_not_cause_names_the_other_owner() -> None:
    """The next discovery finds the new owner in the metadata, and reports it once."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    discovery = Discovery(config(), kafka.clients)
    other = Owner(5, "there", "clean")
    kafka.committed = {each: CommittedOffset(4, str(OffsetMetadata(owner=other))) for each in (A, B)}
    discovery.reported([Receipt(each, 0, 4, outcome=Outcome.FENCED) for each in (A, B)], fenced={A})

    assert {B: other} == discovery.discover().fenced
    assert {} == discovery.discover().fenced


def test_a_run_never_takes_itself_for_the_one_that_fenced_it() -> None:
    """The other run has not committed yet, so the last commit is still ours."""
    kafka = DriverKafka(p0=(0, 10))
    discovery = Discovery(config(), kafka.clients)
    kafka.committed = {A: CommittedOffset(4, str(OffsetMetadata(owner=discovery.owner)))}
    discovery.reported([Receipt(A, 0, 4, outcome=Outcome.FENCED)])

    assert {A: None} == discovery.discover().fenced


def test_a_run_takes_no_earlier_committer_for_the_one_that_fenced_it() -> None:
    """Of several runs that fence one another, none has committed since the plan."""
    kafka = DriverKafka(p0=(0, 10))
    discovery = Discovery(config(), kafka.clients)
    kafka.committed = {A: CommittedOffset(4, str(OffsetMetadata(owner=Owner(5, "there", "clean"))))}
    discovery.discover()
    discovery.reported([Receipt(A, 0, 4, outcome=Outcome.FENCED)])

    assert {A: None} == discovery.discover().fenced


def test_a_later_run_ends_this_one() -> None:
    """A refresh also sees its commits while this run works."""
    kafka = DriverKafka(p0=(0, 10))
    discovery = Discovery(config(), kafka.clients, replace(REAL, wall_clock=lambda: 100.0))
    discovery.discover()
    discovery.refresh()
    kafka.committed[A] = CommittedOffset(4, str(OffsetMetadata(owner=Owner(99_000, "there", "clean"))))
    assert Owner(99_000, "there", "clean") == discovery.refresh().rival
    kafka.committed[A] = CommittedOffset(5, str(OffsetMetadata(owner=Owner(101_000, "there", "clean"))))

    with pytest.raises(Superseded):
        discovery.refresh()


def test_a_run_names_itself_by_its_start_in_milliseconds() -> None:
    """Tasks commit the start time with each offset; by it, two runs know which one is later."""
    runtime = replace(REAL, wall_clock=lambda: 1_000_000.25, host="here")

    assert Owner(1_000_000_250, "here", "clean") == Discovery(config(), DriverKafka().clients, runtime).owner


def test_another_sink_is_refused_at_the_first_discovery() -> None:
    """Nothing is fenced before that."""
    kafka = DriverKafka(p0=(0, 10))
    kafka.committed[A] = CommittedOffset(4, str(OffsetMetadata(owner=Owner(5, "there", "elsewhere"))))

    with pytest.raises(ForeignSink, match="writes to elsewhere"):
        Discovery(config(), kafka.clients).discover()


class LocalKafka(DriverKafka):
    """A Kafka with an offset store in the driver's memory."""

    is_local = True

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        self.committed[partition] = CommittedOffset(offset, metadata)


def test_without_a_store_the_driver_remembers_what_tasks_report() -> None:
    """The next round continues there. Unreported work of a killed task is repeated."""
    kafka = LocalKafka(p0=(0, 10), p1=(0, 10))
    discovery = Discovery(config("delivery.guarantee=at-least-once"), kafka.clients)
    discovery.discover()

    discovery.reported([Receipt(A, 0, 7, metadata="winnow/2 topic=id-1 since=0 in=7 out=7")])
    again = discovery.discover()

    assert {A: 7, B: 0} == {partition: each.start for partition, each in again.ranges.items()}
    assert {A: 7, B: None} == {partition: each.committed for partition, each in again.ranges.items()}


def test_without_a_store_the_driver_remembers_a_cut_that_a_task_found() -> None:
    """The task can store it nowhere, so its report is all that tells."""
    kafka = LocalKafka(p0=(0, 1_100))
    discovery = Discovery(config("delivery.guarantee=at-least-once"), kafka.clients)
    discovery.discover()

    discovery.reported([FOUND])

    assert str(Truncated(A, 1_000, 900)) == str(discovery.discover().blocked[A])


@pytest.mark.parametrize(
    ("kind", "cure"), [(DriverKafka, "winnow offsets reset"), (LocalKafka, "set starting.offsets to something else")]
)
def test_the_cure_fits_the_store(kind: type[DriverKafka], cure: str) -> None:
    """Setting an offset is useless with a store that keeps nothing."""
    found = Discovery(config("starting.offsets=error"), kind(p0=(0, 10)).clients).discover()

    assert cure in str(found.blocked[A])


def test_an_offset_that_cannot_be_read_blocks_its_partition() -> None:
    """A stored value that is not an offset is a named error, and the other partitions continue."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.committed[B] = CommittedOffset.not_readable("field 1 holds '4x', which is not an offset")

    found = Discovery(config(), kafka.clients).discover()

    assert [A] == list(found.ranges)
    assert isinstance(found.blocked[B], CorruptOffset)
    assert "field 1 holds '4x'" in str(found.blocked[B])


def test_the_mirrors_get_every_committed_offset_at_each_look() -> None:
    """Offsets that tasks could not mirror are caught up, and invalid ones are not copied. Each mirror has a status."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10), p2=(0, 10))
    kafka.committed = {A: CommittedOffset(4), B: CommittedOffset.not_readable("x")}
    told: list[object] = []

    class Recorded(Mirrors):
        def put_all(self, offsets: Mapping[Partition, CommittedOffset]) -> None:
            told.append(offsets)

        status = (MirrorStatus("fake", 3, 1, "down", 5.0),)

    discovery = Discovery(config(), replace(kafka.clients, mirrors=Recorded()))

    seen = [discovery.discover().mirrors, discovery.refresh().mirrors]

    assert [{A: CommittedOffset(4)}] * 2 == told
    assert [Recorded.status] * 2 == seen


@pytest.mark.parametrize("seen_by", ["discover", "refresh"])
@pytest.mark.parametrize("metadata", ["", "winnow topic=id-1"])
@pytest.mark.parametrize(("topic_id", "error"), [("id-1", OffsetVanished), ("id-2", TopicRecreated)])
def test_an_offset_that_was_seen_is_remembered(seen_by: str, metadata: str, topic_id: str, error: type) -> None:
    """It was there at one look, whoever committed it, and is gone at the next; this is not a first start."""
    kafka = DriverKafka(p0=(0, 10))
    discovery = Discovery(config(), kafka.clients)
    if seen_by == "refresh":
        discovery.discover()
    kafka.committed[A] = CommittedOffset(5, metadata)
    discovery.discover() if seen_by == "discover" else discovery.refresh()
    del kafka.committed[A]
    kafka.topic_id = topic_id

    assert {A: error} == {partition: type(each) for partition, each in discovery.discover().blocked.items()}


def test_an_offset_that_was_never_read_has_not_vanished() -> None:
    """
    A task has reported the group's first offset, whose transaction hangs. The task goes on there, whether it is pending
    or Kafka has lost it. Once it was read, it can vanish.
    """
    kafka = DriverKafka(p0=(0, 10))
    discovery = Discovery(config(), kafka.clients)
    discovery.discover()
    discovery.reported([Receipt(A, 0, 4, records=4, out=4, outcome=Outcome.DONE, metadata=OURS)])

    for _ in range(2):
        found = discovery.discover()
        (planned,) = found.ranges.values()

        assert not found.blocked
        assert (4, 4, True) == (planned.committed, planned.start, planned.never_read)
        assert [planned] == [replace(each, end=None) for each in found.within({A: 4})]
    kafka.committed[A] = CommittedOffset(4, OURS)

    assert not discovery.discover().ranges[A].never_read
    del kafka.committed[A]
    discovery.reported([Receipt(A, 0, 4, records=4, out=4, outcome=Outcome.DONE, metadata=OURS)])

    assert isinstance(discovery.discover().blocked[A], OffsetVanished)


@pytest.mark.parametrize(("topic_id", "error"), [("id-2", TopicRecreated), ("", OffsetVanished)])
def test_an_offset_that_was_never_read_may_be_of_another_topic(topic_id: str, error: type) -> None:
    """The topic was recreated since; without ids, that is unknown."""
    kafka = DriverKafka(p0=(0, 10))
    kafka.topic_id = topic_id
    discovery = Discovery(config(), kafka.clients)
    ours = str(OffsetMetadata("id-1" if topic_id else "", 0, Counts(4, 4)))
    discovery.reported([Receipt(A, 0, 4, records=4, out=4, outcome=Outcome.DONE, metadata=ours)])

    assert {A: error} == {partition: type(each) for partition, each in discovery.discover().blocked.items()}


class Copies(NoOffsets):
    """The group's offsets on the source's cluster."""

    def __init__(self, offsets: Mapping[Partition, int], metadata: str = "") -> None:
        super().__init__(StoreContext("g", {}))
        for partition, offset in offsets.items():
            self.reset(partition, offset, metadata)


def test_offsets_that_stayed_on_the_sources_cluster_are_not_forgotten() -> None:
    """A new `sink.kafka` does not silently read everything again. An offset that is carried over is trusted."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.room = {}
    apart = config("sink.kafka={bootstrap.servers: there}")
    discovery = Discovery(apart, replace(kafka.clients, copies=Copies({A: 7})))

    before = discovery.discover()
    kafka.committed[A] = CommittedOffset(7)
    after = discovery.discover()

    assert [B] == list(before.ranges)
    (error,) = before.blocked.values()
    assert (OffsetLeftBehind, A, 7) == (type(error), error.partition, error.offset)
    assert "winnow offsets migrate -c winnow.yaml --from source --to kafka" in error.cure
    assert {A: 7, B: 0} == {partition: each.start for partition, each in after.ranges.items()}


@pytest.mark.parametrize(("starting", "start"), [("earliest", 3), ("latest", 3), ("error", None)])
def test_an_offset_that_vanished_before_a_restart(starting: str, start: int | None) -> None:
    """No one remembers it. Only `error` would rather ask than repeat what the partition retains."""
    kafka = DriverKafka(p0=(3, 9), p1=(0, 10))
    kafka.committed[B] = CommittedOffset(7, OURS)

    work = Discovery(config(f"starting.offsets={starting}"), kafka.clients).discover()

    assert {B: 7} | ({} if start is None else {A: start}) == starts(work)
    assert ([A] if start is None else []) == list(work.blocked)


def test_a_partition_above_those_with_an_offset_is_new_although_a_start_must_be_chosen() -> None:
    """Topics grow at their end."""
    kafka = DriverKafka(p0=(0, 10), p1=(3, 9))
    kafka.committed[A] = CommittedOffset(7, OURS)

    assert {A: 7, B: 3} == starts(Discovery(config("starting.offsets=error"), kafka.clients).discover())


def test_a_copy_shows_that_the_group_has_begun_with_the_topic() -> None:
    """A partition that was added meanwhile is read from its beginning, also after the copies were carried over."""
    kafka = DriverKafka(p0=(0, 10), p1=(3, 9))
    discovery = Discovery(config("starting.offsets=latest"), replace(kafka.clients, copies=Copies({A: 7}, OURS)))

    before = discovery.discover()
    kafka.committed[A] = CommittedOffset(7)
    after = discovery.discover()

    assert {B: 3} == starts(before)
    assert {A: 7, B: 3} == starts(after)


@pytest.mark.parametrize("how", ["leaderless", "silent"])
def test_an_offset_that_was_left_behind_is_found_without_a_leader(how: str) -> None:
    """Its partition waits first for a leader, then for an operator, and is never read from its beginning."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.room = {}
    kafka.committed[B] = CommittedOffset(4)
    lose(kafka, A, how)
    discovery = Discovery(config(), replace(kafka.clients, copies=Copies({A: 7})))

    before = discovery.discover()
    kafka.leaderless, kafka.silent = set(), set()
    after = discovery.discover()

    assert [Leaderless, OffsetLeftBehind] == [type(each.blocked[A]) for each in (before, after)]
    assert {B: 4} == starts(before) == starts(after)


def test_an_offset_that_was_left_behind_is_found_when_its_topic_is_seen_later() -> None:
    """Brokers do not learn about a topic all at once, so the first look may miss one."""
    kafka = DriverKafka(p0=(0, 10))
    discovery = Discovery(config(), replace(kafka.clients, copies=Copies({B: 7})))
    discovery.discover()
    kafka.watermark[B] = (0, 10)

    assert isinstance(discovery.discover().blocked[B], OffsetLeftBehind)


def test_an_offset_that_was_left_behind_and_is_deleted_blocks_no_longer() -> None:
    """That is the cure for whoever starts afresh; it needs no restart."""
    kafka, left = DriverKafka(p0=(0, 10)), [Copies({A: 7})]

    class Deleted(Copies):
        def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
            return left.pop().load(partitions, stable=stable) if left else {}

    discovery = Discovery(config(), replace(kafka.clients, copies=Deleted({})))

    assert isinstance(discovery.discover().blocked[A], OffsetLeftBehind)
    assert {A: 0} == starts(discovery.discover())


def test_nothing_is_decided_before_the_copies_are_told() -> None:
    """While the source's cluster is not responding, the whole service waits; then the offset is found left behind."""
    kafka, copies = DriverKafka(p0=(0, 10)), Copies({A: 7})
    asked = iter([Unreachable("away")])

    class Away(Copies):
        def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
            for error in asked:
                raise error
            return copies.load(partitions, stable=stable)

    discovery = Discovery(config(), replace(kafka.clients, copies=Away({})))

    with pytest.raises(Unreachable):
        discovery.discover()
    assert isinstance(discovery.discover().blocked[A], OffsetLeftBehind)


def test_copies_are_looked_at_only_once_and_only_for_what_is_missing() -> None:
    """They follow the main store, so later they would only show what Winnow itself has written."""
    kafka = DriverKafka(p0=(0, 10), p1=(0, 10))
    kafka.committed[A] = CommittedOffset(4)
    copies, asked = Copies({A: 7}), []

    class WatchedCopies(Copies):
        def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
            asked.append(list(partitions))
            return copies.load(partitions, stable=stable)

    discovery = Discovery(config(), replace(kafka.clients, copies=WatchedCopies({})))
    found = [discovery.discover() for _ in range(2)]

    assert [[B]] == asked
    assert [{}, {}] == [each.blocked for each in found]


def test_a_topic_that_is_created_again_during_a_look() -> None:
    """Its ends are those of the new topic, so its id must be, too. Otherwise its log would look truncated."""

    class CreatedAgain(DriverKafka):
        def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
            self.topic_id, self.watermark = "id-2", {A: (0, 0)}
            return super().watermarks(partitions)

    kafka = CreatedAgain(p0=(0, 10))
    kafka.committed[A] = CommittedOffset(5, "winnow topic=id-1")

    assert isinstance(Discovery(config(), kafka.clients).discover().blocked[A], TopicRecreated)
