"""A running service is detected before offsets change, and again afterwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.errors import ForeignMember, PartlySet, ServiceRuns, Unreachable
from app.facts import OpenTransaction
from app.model import CommittedOffset, Owner, Partition
from app.offsets.metadata import OffsetMetadata
from app.operate import running
from app.operate.running import StoppedService
from tests.fakes import FakeKafka, FakeOffsets
from tests.fakes.driver import DriverKafka, config

A, B = Partition("raw", 0), Partition("raw", 1)
BY_HOST = str(OffsetMetadata("id-1", 0, owner=Owner(5_000, "there", "clean")))
LEAST = "delivery.guarantee=at-least-once"


class WatchedGroup:
    """A group with an offset in each of two partitions, and events during the check and the sleep."""

    def __init__(self, metadata: str = "", *settings: str) -> None:
        self.kafka = DriverKafka(p0=(0, 100), p1=(0, 100))
        self.kafka.room = {}
        self.kafka.committed = {each: CommittedOffset(5, metadata) for each in (A, B)}
        self.while_looking: Callable[[], object] = lambda: None
        self.afterwards: Callable[[], object] = lambda: None
        self.looked: list[float] = []
        self.other = FakeOffsets(FakeKafka({}))
        """A store that the configuration does not name."""
        self.kafka.copies = FakeOffsets(FakeKafka({}))
        self.service = StoppedService(config(*settings), self.kafka.clients, self._sleep)

    def _sleep(self, seconds: float) -> None:
        (self.afterwards if self.looked else self.while_looking)()
        self.looked.append(seconds)

    def commit(self, partition: Partition, offset: int, metadata: str = "") -> None:
        self.kafka.committed[partition] = CommittedOffset(offset, metadata)

    def change(self, offset: int) -> None:
        """Set the first partition's offset, as a command does."""
        self.service.prepare(self.kafka, [A], self.other)
        with self.service.changing(self.kafka, lambda count, why: PartlySet(f"{count} of 1, then {why}")) as written:
            self.commit(A, offset)
            written[A] = CommittedOffset(offset)


@pytest.mark.parametrize("ahead", [0.0, 120.0])
def test_a_transaction_whose_markers_wait(ahead: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found some minutes after its timeout, also by a machine whose clock is ahead."""
    stuck, now = OpenTransaction(A, "committing", 1_000_000, 42, 3), 1_000.0 + 5 * 60.0
    monkeypatch.setattr("time.time", lambda: now + ahead)

    assert [stuck] == running.open_transactions(config(), lambda since: [stuck] if stuck.began >= since else [])


def test_nothing_moves_and_nobody_commits() -> None:
    """With a stopped service, offsets are set after a fence, because a transaction could still move them."""
    group = WatchedGroup()

    group.change(7)

    assert 7 == group.kafka.committed[A].offset
    assert {"raw.offsets": 1} == group.kafka.room
    assert [[A]] == group.kafka.fenced


def test_without_transactions_nothing_is_fenced() -> None:
    """With at-least-once there is no transactional id."""
    group = WatchedGroup("", LEAST)

    group.change(7)

    assert [] == group.kafka.fenced


def test_another_store_needs_no_placeholder() -> None:
    """The sink's cluster may refuse to create it."""
    group = WatchedGroup("", LEAST)
    group.other.transactional = False

    group.service.prepare(group.other, [A])

    assert {} == group.kafka.room


def test_what_cannot_be_fenced_is_not_set() -> None:
    """A transaction could still move the offset after it was set."""
    group = WatchedGroup()
    group.kafka.reachable = False

    with pytest.raises(Unreachable, match=r"id of raw-0 could not be fenced, so no offset was changed"):
        group.change(7)
    assert 5 == group.kafka.committed[A].offset


def test_one_that_is_fenced_does_not_stand_for_the_others() -> None:
    """Each id has its own coordinator, and one that is unavailable may still commit an offset."""
    group = WatchedGroup()
    group.kafka.unfenced = {B}

    with pytest.raises(Unreachable, match=r"id of raw-1 could not be fenced"):
        group.service.fence([A, B], "nothing happens")


def test_an_abort_says_that_it_aborted_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes no offset anyway; the other transactions may have ended."""
    group = WatchedGroup()
    group.kafka.unfenced = {B}
    monkeypatch.setattr(running, "StoppedService", lambda *_: group.service)
    found = [OpenTransaction(each, "ongoing", 0, 1, 1) for each in (A, B)]

    with pytest.raises(Unreachable, match=r"of raw-1 could not be fenced, so not all transactions were aborted"):
        running.abort(found, config(), group.kafka.clients)


@pytest.mark.parametrize("partition", [A, B], ids=["a partition that is meant", "any other"])
@pytest.mark.parametrize(("offset", "metadata"), [(6, ""), (5, BY_HOST)], ids=["offset", "metadata"])
def test_an_offset_that_moves(partition: Partition, offset: int, metadata: str) -> None:
    """The service's next commit would win. An idle service commits in one partition only, and the error names it."""
    group = WatchedGroup()
    group.while_looking = lambda: group.commit(partition, offset, metadata)

    with pytest.raises(ServiceRuns, match=f"is running: it committed {partition} during the check: stop it"):
        group.change(7)
    assert [] == group.kafka.fenced


@pytest.mark.parametrize("store", ["other", "copies"])
def test_an_offset_that_moves_in_another_store(store: str) -> None:
    """The service may still be running with the store that offsets are moved from, or on the source's cluster."""
    group = WatchedGroup()
    elsewhere = group.other if store == "other" else group.kafka.copies
    assert elsewhere is not None
    group.while_looking = lambda: elsewhere.reset(B, 9, "")

    with pytest.raises(ServiceRuns, match="it committed raw-1"):
        group.change(7)


def test_a_copy_that_is_corrected_is_no_commit() -> None:
    """A paused service does that after a reset, so that a second reset at once would be refused."""
    group = WatchedGroup()
    copies, main = group.kafka.copies, group.kafka.committed
    assert copies is not None
    copies.reset(B, 9, "")
    group.while_looking = lambda: copies.reset(B, main[B].offset, "")

    group.change(7)


@pytest.mark.parametrize(("interval", "seconds"), [("500ms", 3), ("15s", 30)])
def test_it_looks_for_as_long_as_a_commit_may_take(interval: str, seconds: float) -> None:
    """With a long interval, a busy service is silent for longer than an idle one."""
    group = WatchedGroup("", f"commit.interval={interval}")

    group.service.refuse_running()

    assert [seconds] == group.looked


def test_a_member_of_the_group() -> None:
    """A foreign consumer is an error before anything is watched."""
    group = WatchedGroup()

    def members() -> None:
        raise ForeignMember("group has members", "stop them")

    group.kafka.when_asked = members

    with pytest.raises(ForeignMember):
        group.change(7)
    assert [] == group.looked


@pytest.mark.parametrize(
    ("found", "there"),
    [(CommittedOffset(70, BY_HOST), "70"), (CommittedOffset(7, BY_HOST), "7"), (None, "nothing")],
    ids=["another offset", "another metadata", "none"],
)
def test_an_offset_that_is_written_over(found: CommittedOffset | None, there: str) -> None:
    """A service that nothing else revealed is detected by its next commit."""
    group = WatchedGroup()

    def write() -> None:
        group.kafka.committed = {} if found is None else {A: found}

    group.afterwards = write

    with pytest.raises(
        PartlySet, match=f"1 of 1, then .* raw-0 was set to 7 but now has {there}: stop it, and set again what it has"
    ):
        group.change(7)
