"""The readers of the group's offsets: one for all as long as it answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from threading import Event

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from app.errors import NotAllowed, NotUsable, Transient, Unreachable
from app.kafka import offsets
from app.kafka.offsets import KafkaGroupOffsets
from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from tests.support.waiting import PATIENCE, until

RAW = Partition("raw", 0)
FOUND = {RAW: CommittedOffset(7, "m")}


class Readers:
    """Makes consumers that answer, except those that must hang until the end of the test."""

    def __init__(self) -> None:
        self.made: list[Readers.Reader] = []
        self.asked = Event()
        self.answer = Event()
        self.hangs = self.fails = self.refuses = False
        self.code: int = KafkaError._TIMED_OUT
        """The error of a request that fails."""
        self.takes = 0.0
        """The seconds of each request."""
        self.crowd = 0
        """How many readers there are before any of them answers."""

    class Reader:
        """Answers, hangs or fails as it is told."""

        def __init__(self, readers: Readers) -> None:
            self._readers = readers
            self.closed = False

        def _ask(self) -> None:
            if self._readers.fails:
                raise KafkaException(KafkaError(self._readers.code))
            time.sleep(self._readers.takes)
            until(lambda: len(self._readers.made) >= self._readers.crowd, "another reader")
            if self._readers.hangs and self is self._readers.made[0]:
                self._readers.asked.set()
                assert self._readers.answer.wait(PATIENCE)

        def committed(self, wanted: list[TopicPartition], _: float) -> list[TopicPartition]:
            self._ask()
            return [TopicPartition(each.topic, each.partition, 7, "m") for each in wanted]

        def commit(self, **_: object) -> None:
            self._ask()

        def poll(self, _: float) -> None:
            pass

        def close(self) -> None:
            self.closed = True

    def __call__(self, *_: object, **__: object) -> Reader:
        if self.refuses:
            raise NotUsable("a secret cannot be read")
        self.made.append(self.Reader(self))
        return self.made[-1]


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Readers]:
    readers = Readers()
    monkeypatch.setattr(offsets, "Consumer", readers)
    monkeypatch.setattr(offsets, "LONG_SECONDS", 0.05)
    yield readers
    readers.answer.set()


@pytest.fixture
def store(readers: Readers) -> KafkaGroupOffsets:
    """Return the store of a task, whose lanes read and commit in threads."""
    return KafkaGroupOffsets(StoreContext("group", {}, planned={}))


def test_no_read_of_a_task_makes_a_connection(readers: Readers, store: KafkaGroupOffsets) -> None:
    """It reads before it fences and after, while readers of the sink wait."""
    connected = list(readers.made)
    for stable in (False, True):
        store.load([RAW], stable=stable)

    assert connected == readers.made


@pytest.mark.parametrize("refused", [False, True])
def test_lanes_share_a_reader(
    readers: Readers, store: KafkaGroupOffsets, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one has connections of its own, so hundreds of lanes must not have hundreds. Also if one cannot be made."""
    monkeypatch.setattr(offsets, "LONG_SECONDS", PATIENCE)
    readers.takes = 0.001
    if refused:
        readers.fails = True
        with pytest.raises(Unreachable):
            store.load([RAW], stable=False)
        readers.fails, readers.refuses = False, True
        with pytest.raises(NotUsable):
            store.load([RAW], stable=False)
        readers.refuses = False
        monkeypatch.setattr(offsets, "LONG_SECONDS", 0.0)  # whoever thinks that it is lent does not wait
        store.load([RAW], stable=False)
        monkeypatch.setattr(offsets, "LONG_SECONDS", PATIENCE)
    with ThreadPoolExecutor(8) as lanes:
        found = list(lanes.map(lambda _: store.load([RAW], stable=True), range(50)))
    store.reset(RAW, 8, "")
    store.close()

    assert [FOUND] * 50 == found
    assert [True, not refused, *[True] * refused] == [each.closed for each in readers.made]


def test_lanes_have_several_readers_where_each_answer_takes_long(readers: Readers, store: KafkaGroupOffsets) -> None:
    """A cluster that is far away would otherwise serve one lane after the other."""
    readers.crowd = len(readers.made) + 1
    with ThreadPoolExecutor(24) as lanes:
        found = list(lanes.map(lambda _: store.load([RAW], stable=True), range(24)))

    assert [FOUND] * 24 == found


@pytest.mark.parametrize("call", ["load", "reset"])
def test_a_call_without_an_answer_delays_no_other_lane(readers: Readers, store: KafkaGroupOffsets, call: str) -> None:
    """A broker that freezes answers nobody on that connection, and a new one may lead to its successor."""
    readers.hangs = True
    ask = partial(store.load, [RAW], stable=True) if call == "load" else partial(store.reset, RAW, 8, "")
    with ThreadPoolExecutor(1) as lane, ExitStack() as stack:
        stack.callback(readers.answer.set)
        hanging: Future[object] = lane.submit(ask)
        assert readers.asked.wait(PATIENCE)

        others = [store.load([RAW], stable=True) for _ in range(3)]
        store.reset(RAW, 9, "")

        assert not hanging.done()
    assert [FOUND] * 3 == others
    assert 3 == len(readers.made)


def test_a_reader_that_failed_is_replaced(readers: Readers, store: KafkaGroupOffsets) -> None:
    """A client whose only broker was killed may never answer again."""
    readers.fails = True
    with pytest.raises(Unreachable):
        store.load([RAW], stable=True)
    readers.fails = False

    assert FOUND == store.load([RAW], stable=True)
    assert 3 == len(readers.made)


@pytest.mark.parametrize(
    ("code", "right"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "--operation Read --group 'my group'"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "--operation Read --topic raw.offsets"),
        (KafkaError._AUTHENTICATION, "check the credentials"),
    ],
)
def test_a_missing_right_to_commit_ends_a_command(readers: Readers, code: int, right: str) -> None:
    """A command shows how to grant it. A task opens the partition again: a restarted broker may not know our rights."""
    context = StoreContext("my group", {"bootstrap.servers": "there:9092"}, placeholder="{topic}.offsets")
    readers.fails, readers.code = True, code

    with pytest.raises(NotAllowed, match=r"denied access while committing the offset of raw-0: ") as caught:
        KafkaGroupOffsets(context).reset(RAW, 8, "")
    with pytest.raises(Transient):
        KafkaGroupOffsets(replace(context, planned={})).reset(RAW, 8, "")

    assert right in caught.value.cure
    assert ("kafka-acls --bootstrap-server there:9092 --add" in caught.value.cure) is right.startswith("--operation")


def test_a_missing_right_to_read_shows_how_to_grant_it(readers: Readers) -> None:
    """Whoever pauses the service reads the group of the pause first."""
    readers.fails, readers.code = True, KafkaError.GROUP_AUTHORIZATION_FAILED

    with pytest.raises(NotAllowed, match=r"offsets of group 'g.pause': .* --operation Read --group g\.pause$"):
        KafkaGroupOffsets(StoreContext("g.pause", {})).load([RAW], stable=False)
