"""Mirrors follow the store in threads of their own, and never delay anything."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import pytest
import structlog

from app.errors import NotAllowed, Transient, Unreachable
from app.events import Event
from app.model import CommittedOffset, Partition
from app.offsets import mirrors
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.mirrors import Mirror, Mirrors, Write, put_right, write_forward
from app.offsets.none import NoOffsets
from tests.support.logs import of_event
from tests.support.waiting import PATIENCE, until

A, B = Partition("raw", 0), Partition("raw", 1)
CONTEXT = StoreContext("group", {})


class FailingStore(NoOffsets):
    """A store whose server can be down or hang; it records each save."""

    def __init__(self) -> None:
        super().__init__(CONTEXT)
        self.up = threading.Event()
        self.up.set()
        self.error: Exception | None = None
        self.saves: list[tuple[Partition, int]] = []
        self.closed = False

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        assert self.up.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        super().save(partition, offset, metadata)
        self.saves.append((partition, offset))

    def close(self) -> None:
        self.closed = True

    def holds(self, partition: Partition) -> int | None:
        return at.offset if (at := self.load([partition], stable=True).get(partition)) else None


@pytest.fixture
def server() -> FailingStore:
    return FailingStore()


@pytest.fixture
def mirrored(server: FailingStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirrors]:
    """Return a task's mirrors with a single one, which writes without a pause."""
    monkeypatch.setattr(mirrors, "PACE_SECONDS", 0.01)
    monkeypatch.setattr(mirrors, "FIRST_BACKOFF", 0.01)
    made = Mirrors([Mirror("fake", lambda: server, write_forward)])
    yield made
    server.up.set()
    made.close()


def test_each_committed_offset_reaches_the_mirror(server: FailingStore, mirrored: Mirrors) -> None:
    """The mirror holds the last committed offset with its metadata."""
    mirrored.put(A, 5, "five")
    mirrored.put(B, 7, "")
    until(lambda: server.holds(A) == 5 and server.holds(B) == 7)
    mirrored.put(A, 6, "six")
    until(lambda: server.holds(A) == 6)

    assert {A: CommittedOffset(6, "six")} == server.load([A], stable=True)


def test_an_idle_partition_is_not_written_again(server: FailingStore, mirrored: Mirrors) -> None:
    """Repeated commits of the same offset do not reach the mirror."""
    for _ in range(3):
        mirrored.put(A, 5, "")
        until(lambda: server.holds(A) == 5)
    mirrored.close()

    assert [(A, 5)] == server.saves


def test_a_mirror_that_hangs_holds_up_nobody(server: FailingStore, mirrored: Mirrors) -> None:
    """While it hangs, only each partition's newest offset is kept, and written afterwards."""
    server.up.clear()
    for offset in range(1000):
        mirrored.put(A, offset, "")
    server.up.set()
    until(lambda: server.holds(A) == 999)

    assert len(server.saves) <= 3


def test_the_end_of_a_round_waits_a_moment_only(
    server: FailingStore, mirrored: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task does not wait long for a mirror that hangs."""
    monkeypatch.setattr(mirrors, "CLOSE_SECONDS", 0.05)
    server.up.clear()
    mirrored.put(A, 1, "")

    mirrored.close()

    assert [] == server.saves


def test_the_end_of_a_round_writes_what_waits(server: FailingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last committed offset is in the mirror when the task ends, despite the mirror's pace."""
    monkeypatch.setattr(mirrors, "PACE_SECONDS", PATIENCE)
    monkeypatch.setattr(mirrors, "CLOSE_SECONDS", PATIENCE)
    made = Mirrors([Mirror("fake", lambda: server, write_forward)])
    made.put(A, 1, "")
    until(lambda: server.holds(A) == 1)
    made.put(A, 2, "")

    made.close()

    assert 2 == server.holds(A)
    until(lambda: server.closed)


def test_a_failing_mirror_is_counted_said_and_caught_up(
    server: FailingStore, mirrored: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log reports an outage once, then every minute, and its end; no offset is lost."""
    monkeypatch.setattr(mirrors, "REMIND_SECONDS", 0.05)
    server.error = Unreachable("the server does not answer")
    with structlog.testing.capture_logs() as logged:
        mirrored.put(A, 5, "")
        until(lambda: len(logged) >= 2)
        (failing,) = mirrored.status
        mirrored.put(B, 6, "")
        server.error = None
        until(
            lambda: (
                server.holds(A) == 5
                and server.holds(B) == 6
                and Event.MIRROR_CAUGHT_UP.key in [each["event"] for each in logged]
            )
        )

    (well,) = mirrored.status
    assert ("fake", well.failures, 0, "", 0.0) == well
    assert ("the server does not answer", True) == (failing.error, failing.since > 1_000_000)
    assert failing.waiting in (0, 1)  # none while an attempt is under way
    assert [Event.MIRROR_FAILING.key] * 2 == [each["event"] for each in logged][:2]
    assert ("fake", "the server does not answer", 1) == tuple(logged[0][key] for key in ("mirror", "error", "waiting"))
    assert well.failures == logged[-1]["failures"] >= 2


def test_each_outage_of_a_mirror_is_told_by_itself(server: FailingStore, mirrored: Mirrors) -> None:
    """The log counts the failures of one outage, not of all before it."""
    with structlog.testing.capture_logs() as logged:
        for offset in (5, 6):
            server.error = Unreachable("the server does not answer")
            mirrored.put(A, offset, "")
            until(lambda: logged and logged[-1]["event"] == Event.MIRROR_FAILING.key)
            server.error = None
            until(lambda: logged[-1]["event"] == Event.MIRROR_CAUGHT_UP.key)

    told = [each["failures"] for each in of_event(logged, Event.MIRROR_CAUGHT_UP.key)]
    assert 2 == len(told)
    assert mirrored.status[0].failures == sum(told)


def test_whatever_a_store_raises_the_mirror_goes_on(server: FailingStore, mirrored: Mirrors) -> None:
    """A bug in a store ends neither the task nor the mirror."""
    server.error = KeyError("bug")
    mirrored.put(A, 5, "")
    until(lambda: mirrored.status[0].failures)
    server.error = None

    until(lambda: server.holds(A) == 5)


class OldPassword(FailingStore):
    """A store whose password the server does not accept any more; its client fails to close, too."""

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        raise NotAllowed("denied access", "check the password")

    def close(self) -> None:
        super().close()
        raise OSError("already closed")


def test_a_rotated_password_is_read_again(server: FailingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store reads its secrets when it is opened, so one that fails is closed and opened again."""
    monkeypatch.setattr(mirrors, "FIRST_BACKOFF", 0.01)
    old = OldPassword()
    stores = iter([old, server])
    made = Mirrors([Mirror("fake", lambda: next(stores), write_forward)])

    made.put(A, 5, "")
    until(lambda: server.holds(A) == 5 or made.status[0].failures > 1)
    made.close()

    assert (5, 1, True) == (server.holds(A), made.status[0].failures, old.closed)


def test_the_store_of_kafka_is_kept(server: FailingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts no commit before the last one has ended, which librdkafka may repeat. It reads its secrets itself."""
    monkeypatch.setattr(mirrors, "FIRST_BACKOFF", 0.01)
    server.transactional = True
    server.error = Transient(A, "Timed out")
    stores = iter([server])
    made = Mirrors([Mirror("kafka", lambda: next(stores), write_forward)])

    made.put(A, 5, "")
    until(lambda: made.status[0].failures)
    assert not server.closed
    server.error = None
    until(lambda: server.holds(A) == 5)
    made.close()

    until(lambda: server.closed)


def test_a_store_that_cannot_be_opened_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may lack a mirror's client, even if the driver has it."""
    monkeypatch.setattr(mirrors, "FIRST_BACKOFF", 0.01)

    def broken() -> FailingStore:
        raise ValueError("not installed here")

    made = Mirrors([Mirror("fake", broken, write_forward)])
    with structlog.testing.capture_logs() as logged:
        made.put(A, 5, "")
        until(lambda: made.status[0].failures)
    made.close()

    assert "not installed here" == logged[0]["error"]


def test_a_task_leaves_a_mirror_that_is_ahead_to_the_driver(server: FailingStore) -> None:
    """A task cannot tell whether it is late itself."""
    server.reset(A, 9, "ahead")

    write_forward(server, {A: CommittedOffset(5), B: CommittedOffset(6)})

    assert (9, 6) == (server.holds(A), server.holds(B))


class MainStore(NoOffsets):
    """The store that is mirrored."""

    def __init__(self, **offsets: int) -> None:
        super().__init__(CONTEXT)
        for name, offset in offsets.items():
            self.reset(Partition("raw", int(name[1:])), offset, "")


def test_the_driver_catches_up_what_killed_tasks_did_not_write(server: FailingStore) -> None:
    """At each discovery the mirror gets what it lacks, and nothing else."""
    server.save(B, 6, "")

    put_right(server, {A: CommittedOffset(5), B: CommittedOffset(6)}, MainStore(p0=5, p1=6))

    assert [(B, 6), (A, 5)] == server.saves


def test_the_truth_wins_where_the_mirror_is_ahead(server: FailingStore) -> None:
    """If an operator set offsets back, the mirror follows."""
    server.save(A, 100, "")

    put_right(server, {A: CommittedOffset(5)}, MainStore(p0=5))

    assert 5 == server.holds(A)


def test_a_task_that_went_on_meanwhile_is_not_set_back(server: FailingStore) -> None:
    """The mirror is newer than the discovery, as the store, read again, shows."""
    server.save(A, 100, "")

    put_right(server, {A: CommittedOffset(5)}, MainStore(p0=100))

    assert 100 == server.holds(A)


class PendingStore(MainStore):
    """A store in which an offset is always pending."""

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        assert stable
        raise Unreachable("pending")


def test_a_pending_offset_holds_up_no_other(server: FailingStore) -> None:
    """Beside hundreds of busy tasks one is always pending. Whether the mirror is ahead is decided at the next look."""
    server.save(A, 100, "")

    put_right(server, {A: CommittedOffset(5), B: CommittedOffset(6)}, PendingStore())

    assert (100, 6) == (server.holds(A), server.holds(B))


class Corrupt(FailingStore):
    """A mirror that holds something other than offsets."""

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        return {A: CommittedOffset.not_readable("not an offset")}


def test_corrupt_content_of_a_mirror_is_replaced() -> None:
    """A mirror is a copy, so a corrupt one blocks nothing."""
    server = Corrupt()

    put_right(server, {A: CommittedOffset(5)}, MainStore(p0=5))

    assert {A: CommittedOffset(5)} == NoOffsets.load(server, [A], stable=True)


class PartlyDown(FailingStore):
    """A mirror that cannot store one partition, where it holds something other than an offset."""

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        return {**super().load(partitions, stable=stable), A: CommittedOffset.not_readable("not an offset")}

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        self._refuse(partition)
        super().save(partition, offset, metadata)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        self._refuse(partition)
        super().reset(partition, offset, metadata)

    def _refuse(self, partition: Partition) -> None:
        if partition == A:
            raise Transient(A, "the server does not answer")


def write_as_the_driver(mirror: OffsetStore, left: dict[Partition, CommittedOffset]) -> None:
    put_right(mirror, left, MainStore(p0=5, p1=6))


@pytest.mark.parametrize("write", [write_forward, write_as_the_driver])
class TestPartlyDown:
    """One partition whose offset cannot be written does not keep the others from the mirror."""

    @pytest.fixture(autouse=True)
    def _failures_are_quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """None counts as slow because the machine is busy."""
        monkeypatch.setattr(mirrors, "FAILURE_SECONDS", PATIENCE)

    def test_only_what_failed_is_left(self, write: Write) -> None:
        server, left = PartlyDown(), {A: CommittedOffset(5), B: CommittedOffset(6)}

        with pytest.raises(Transient, match="raw-0"):
            write(server, left)

        assert {A: CommittedOffset(5)} == left
        assert [(B, 6)] == server.saves

    def test_a_slow_failure_is_the_last_one_but_comes_last_the_next_time(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A store that is down costs one timeout, not one for each partition."""
        monkeypatch.setattr(mirrors, "FAILURE_SECONDS", -1.0)
        server, left = PartlyDown(), {A: CommittedOffset(5), B: CommittedOffset(6)}

        with pytest.raises(Transient, match="raw-0"):
            write(server, left)
        assert ([], [B, A]) == (server.saves, list(left))
        with pytest.raises(Transient, match="raw-0"):
            write(server, left)

        assert ([(B, 6)], [A]) == (server.saves, list(left))

    def test_only_what_failed_is_tried_again(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        """The mirror keeps it, and says why."""
        monkeypatch.setattr(mirrors, "FIRST_BACKOFF", 0.01)
        server = PartlyDown()
        made = Mirrors([Mirror("fake", lambda: server, write)])

        made.put_all({A: CommittedOffset(5), B: CommittedOffset(6)})
        until(lambda: made.status[0].failures >= 2)
        (status,) = made.status
        made.close()

        assert "raw-0: the server does not answer" == status.error
        assert [(B, 6)] == server.saves

    def test_what_the_driver_sees_no_more_is_not_tried_again(
        self, write: Write, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its topic is gone, so Kafka takes no offset of it. A task names only what it has just committed."""
        monkeypatch.setattr(mirrors, "FIRST_BACKOFF", PATIENCE)
        server = PartlyDown()
        made = Mirrors([Mirror("fake", lambda: server, write)])

        made.put_all({A: CommittedOffset(5), B: CommittedOffset(6)})
        until(lambda: made.status[0].failures)
        made.put(B, 7, "")
        assert 2 == made.status[0].waiting
        made.put_all({B: CommittedOffset(8)})
        assert 1 == made.status[0].waiting
        made.close()

        until(lambda: [(B, 6), (B, 8)] == server.saves)
        assert 1 == made.status[0].failures
