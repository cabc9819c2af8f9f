"""The listener for Structured Streaming queries, with progress reported by a real query on Spark 4.0.0."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from app.errors import Fenced, Unreachable
from app.model import CommittedOffset, Partition
from app.offsets.failures import UnknownStore
from app.spark import listener
from app.spark.listener import OffsetListener, OffsetSaver, end_offsets
from tests.fakes.simulation import SimulatedTime
from tests.support.waiting import PATIENCE, until

ROWS = Path(__file__).parents[2].joinpath("data", "streaming-query-progress.jsonl").read_text().splitlines()
FIRST, GROWN, RESTARTED = ROWS
PARTITION = Partition("raw-logs", 0)
SECONDS = PATIENCE


class FakeStore:
    """A store that can be unavailable or slow, and records each saved offset."""

    transactional = False

    def __init__(self) -> None:
        self.committed: dict[Partition, int] = {}
        self.asked: list[tuple[Partition, int]] = []
        self.away: Exception | None = None
        self.refused: set[Partition] = set()
        self.ready = threading.Event()
        self.closed = threading.Event()
        self.ready.set()

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        assert stable
        assert self.ready.wait(SECONDS)
        if self.away is not None:
            raise self.away
        return {each: CommittedOffset(self.committed[each]) for each in partitions if each in self.committed}

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        if partition in self.refused:
            raise Fenced(partition, "no", offset)
        self.asked.append((partition, offset))
        self.committed[partition] = offset

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        raise AssertionError

    def close(self) -> None:
        self.closed.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits between attempts."""
    monkeypatch.setattr(listener, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(listener, "LAST_PAUSE", 0.001)


@pytest.fixture
def store() -> FakeStore:
    """Return an empty store."""
    return FakeStore()


@pytest.fixture
def clock() -> SimulatedTime:
    """Return a clock that stands still."""
    return SimulatedTime()


@pytest.fixture
def saver(store: FakeStore, clock: SimulatedTime) -> Iterator[OffsetSaver]:
    """Yield a saver; afterwards its thread has ended and the store is closed."""
    made = OffsetSaver(store, clock)
    yield made
    made.close(0)
    store.ready.set()
    assert store.closed.wait(SECONDS)


def away_for(store: FakeStore, saver: OffsetSaver, attempts: int) -> None:
    """Let this many attempts to reach the store fail."""
    tried = threading.Semaphore(0)
    answer = store.load

    def refuse(partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        tried.release()
        msg = "nobody answers"
        raise Unreachable(msg)

    store.load = refuse  # type: ignore[method-assign]
    saver.offer({PARTITION: 1})
    for _ in range(attempts):
        assert tried.acquire(timeout=SECONDS)
    store.load = answer  # type: ignore[method-assign]


def test_the_end_offsets_of_all_sources() -> None:
    """All partitions of all Kafka sources count, but no other sources."""
    assert {("raw-logs", 0): 5, ("raw-logs", 1): 0, ("audit", 0): 0, ("events", 0): 3} == end_offsets(FIRST)


def test_added_partitions_and_a_restart() -> None:
    """An added partition counts, and so do reads after a restart from the checkpoint."""
    grown = {("raw-logs", 0): 5, ("raw-logs", 1): 0, ("raw-logs", 2): 7, ("audit", 0): 2, ("events", 0): 3}

    assert grown == end_offsets(GROWN)
    assert grown | {("events", 0): 7} == end_offsets(RESTARTED)


def test_two_sources_that_read_the_same_partition() -> None:
    """The offset is that of the slower source."""
    progress = json.loads(FIRST)
    twin = json.loads(json.dumps(progress["sources"][0]))
    twin["endOffset"]["raw-logs"]["0"] = 4
    progress["sources"].append(twin)

    assert 4 == end_offsets(json.dumps(progress))[PARTITION]


def test_a_source_without_an_end() -> None:
    """A source that has not read yet has no offsets."""
    progress = json.loads(FIRST)
    progress["sources"][0]["endOffset"] = None

    assert {("events", 0): 3} == end_offsets(json.dumps(progress))


def test_offsets_are_saved(store: FakeStore, saver: OffsetSaver) -> None:
    """The store receives each change once."""
    saver.offer({PARTITION: 5})
    assert saver.close(SECONDS)

    assert [(PARTITION, 5)] == store.asked


def test_the_same_offset_is_saved_once(store: FakeStore, saver: OffsetSaver) -> None:
    """A query that reads nothing new does not write to the store."""
    for offset in (5, 5, 6):
        saver.offer({PARTITION: offset})
        with saver._changed:
            assert saver._changed.wait_for(lambda: not saver._due, SECONDS)

    assert [(PARTITION, 5), (PARTITION, 6)] == store.asked


def test_only_the_newest_offset_is_saved(store: FakeStore, saver: OffsetSaver) -> None:
    """While the store is slow, the query does not wait, and outdated offsets are never saved."""
    store.ready.clear()
    for offset in range(1, 1_000):
        saver.offer({PARTITION: offset})
    store.ready.set()
    assert saver.close(SECONDS)

    assert [(PARTITION, 999)] == store.asked[-1:]
    assert len(store.asked) <= 2


def test_an_outage(
    store: FakeStore, saver: OffsetSaver, clock: SimulatedTime, caplog: pytest.LogCaptureFixture
) -> None:
    """The saver retries until the store responds; it logs once a minute, and once at the end."""
    away_for(store, saver, 20)
    with saver._changed:
        assert saver._changed.wait_for(lambda: not saver._due, SECONDS)
    clock.pass_by(listener.SAY_AGAIN_SECONDS)
    away_for(store, saver, 0)
    store.away = RuntimeError("whatever a store raises")
    saver.offer({PARTITION: 2})
    until(lambda: any("whatever a store raises" in record.getMessage() for record in caplog.records))
    assert not saver.close(0.1)

    told = [record.getMessage() for record in caplog.records]
    assert 1 == sum("nobody answers" in each for each in told)
    assert 1 == sum("saved again" in each for each in told)
    assert 1 == sum("whatever a store raises" in each for each in told)
    assert {PARTITION: 1} == store.committed


def test_an_offset_never_goes_back(store: FakeStore, saver: OffsetSaver, caplog: pytest.LogCaptureFixture) -> None:
    """A query that starts afresh leaves the offset as it is, and logs that once a minute."""
    store.committed[PARTITION] = 100
    for offset in (10, 20):
        saver.offer({PARTITION: offset})
        with saver._changed:
            assert saver._changed.wait_for(lambda: not saver._due, SECONDS)
    saver.offer({PARTITION: 101})
    assert saver.close(SECONDS)

    assert [(PARTITION, 101)] == store.asked
    assert ["raw-logs-0 stays at 100, because the query is only at 10"] == [
        each.getMessage() for each in caplog.records
    ]


def test_one_partition_in_trouble_does_not_hold_up_the_others(store: FakeStore, saver: OffsetSaver) -> None:
    """The offsets of the other partitions are saved."""
    bad = Partition("gone", 0)
    store.refused.add(bad)
    saver.offer({bad: 1, PARTITION: 1})

    until(lambda: store.asked)
    assert not saver.close(0.1)
    assert [(PARTITION, 1)] == store.asked


def test_an_idle_query_keeps_its_offsets(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged offsets are saved again before the broker expires them."""
    monkeypatch.setattr(listener, "RENEW_SECONDS", 0.01)
    renewed = threading.Event()
    saver = OffsetSaver(store)
    save = store.save

    def twice(partition: Partition, offset: int, metadata: str) -> None:
        save(partition, offset, metadata)
        if len(store.asked) == 2:
            renewed.set()

    store.save = twice  # type: ignore[method-assign]
    saver.offer({PARTITION: 5})

    assert renewed.wait(SECONDS)
    saver.close(0)
    assert store.closed.wait(SECONDS)
    assert {(PARTITION, 5)} == set(store.asked)


def offered(saver: OffsetSaver, offsets: Mapping[Partition, int], query: str = "") -> None:
    """Offer offsets and wait until none of them is due."""
    saver.offer(dict(offsets), query)
    with saver._changed:
        assert saver._changed.wait_for(lambda: not saver._due, SECONDS)


def ended(saver: OffsetSaver, store: FakeStore) -> bool:
    """Close the saver; return whether all was saved, once its thread has done what it was at."""
    saved = saver.close(SECONDS)
    assert store.closed.wait(SECONDS)
    return saved


def test_an_idle_partition_of_a_busy_query_keeps_its_offset(
    store: FakeStore, saver: OffsetSaver, clock: SimulatedTime
) -> None:
    """It is saved again in time, although others are due again and again."""
    idle = Partition("raw-logs", 1)
    offered(saver, {PARTITION: 1, idle: 5})
    offered(saver, {PARTITION: 2, idle: 5})
    clock.pass_by(listener.RENEW_SECONDS)
    offered(saver, {PARTITION: 3, idle: 5})

    assert ended(saver, store)
    assert [(idle, 5)] * 2 == [each for each in store.asked if each[0] == idle]


def test_an_offset_that_the_query_has_yet_to_pass_is_renewed(
    store: FakeStore, saver: OffsetSaver, clock: SimulatedTime
) -> None:
    """Otherwise the broker would expire it before the query is there."""
    store.committed[PARTITION] = 100
    offered(saver, {PARTITION: 5})
    clock.pass_by(listener.RENEW_SECONDS)
    offered(saver, {PARTITION: 6})

    assert ended(saver, store)
    assert [(PARTITION, 100)] == store.asked


class TestADeletedTopic:
    """The store refuses the offsets of its partitions from then on."""

    GONE = Partition("gone", 0)

    def test_is_not_renewed_once_the_query_names_it_no_longer(
        self, store: FakeStore, saver: OffsetSaver, clock: SimulatedTime
    ) -> None:
        """What another query named stays."""
        other = Partition("other", 0)
        offered(saver, {PARTITION: 1, self.GONE: 5})
        offered(saver, {other: 7}, "another query")
        offered(saver, {PARTITION: 1})
        clock.pass_by(listener.RENEW_SECONDS)
        offered(saver, {PARTITION: 2})

        assert ended(saver, store)
        assert [(PARTITION, 1), (self.GONE, 5), (other, 7), (PARTITION, 2), (other, 7)] == store.asked

    def test_is_not_due_once_the_query_names_it_no_longer(self, store: FakeStore, saver: OffsetSaver) -> None:
        """The end does not wait for its last offsets, which cannot be saved any more."""
        store.refused.add(self.GONE)
        saver.offer({PARTITION: 1, self.GONE: 5})
        offered(saver, {PARTITION: 2})

        assert ended(saver, store)

    def test_is_tried_once_for_each_renewal_as_long_as_the_query_names_it(
        self, store: FakeStore, saver: OffsetSaver, clock: SimulatedTime, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The query may have ended with it, so the end does not wait for it either."""
        offered(saver, {PARTITION: 1, self.GONE: 5})
        store.refused.add(self.GONE)
        clock.pass_by(listener.RENEW_SECONDS)
        offered(saver, {PARTITION: 2, self.GONE: 5})
        clock.pass_by(listener.SAY_AGAIN_SECONDS)
        offered(saver, {PARTITION: 3, self.GONE: 5})

        assert ended(saver, store)
        assert 1 == sum("not being saved" in each.getMessage() for each in caplog.records)


def event(name: str, progress: str = "", run: object = None) -> Any:
    """Make an event of a query."""
    told = SimpleNamespace(name=name, id=uuid4(), json=progress)
    return SimpleNamespace(name=name, runId=run or uuid4(), progress=told)


@pytest.fixture
def followed(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> OffsetListener:
    """Return a listener that follows the query `mine`."""
    monkeypatch.setattr(listener, "open_store", lambda plugin, context: store)
    return OffsetListener("group", {}, query="mine")


def test_other_queries_are_not_followed(store: FakeStore, followed: OffsetListener) -> None:
    """A listener for one query ignores the others in its session."""
    followed.onQueryProgress(event("other", GROWN))
    followed.onQueryProgress(event("mine", FIRST))

    assert followed.close(SECONDS)
    assert end_offsets(FIRST) == store.committed


def test_close_waits_for_the_last_progress(store: FakeStore, followed: OffsetListener) -> None:
    """Spark reports the last batch and the end of a query after the query has ended."""
    run = uuid4()
    followed.onQueryStarted(event("mine", run=run))
    followed.onQueryStarted(event("other"))
    closed: list[bool] = []
    closing = threading.Thread(target=lambda: closed.append(followed.close(SECONDS)))
    closing.start()
    followed.onQueryProgress(event("mine", FIRST))
    followed.onQueryIdle(event("mine"))
    followed.onQueryTerminated(event("mine", run=run))
    closing.join(SECONDS)

    assert [True] == closed
    assert end_offsets(FIRST) == store.committed


def test_close_does_not_promise_the_offsets_of_a_query_that_still_runs(followed: OffsetListener) -> None:
    """Nothing is due, but the query will go on, and nobody will save its offsets."""
    followed.onQueryStarted(event("mine"))

    assert not followed.close(0)


def test_a_store_that_does_not_exist() -> None:
    """A wrong name is an error when the listener is created, not in the middle of a query."""
    with pytest.raises(UnknownStore, match="no offset store is called 'kafak'"):
        OffsetListener("group", {}, store={"name": "kafak"})
