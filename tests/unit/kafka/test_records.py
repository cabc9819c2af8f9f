"""When a bounded read ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException, TopicPartition

from app.kafka import records as module
from app.kafka.records import SILENT_SECONDS, read
from app.model import Partition
from app.records import Record

BUSY, SILENT = Partition("raw", 0), Partition("raw", 1)
TURNS = 100
"""Far more than SILENT_SECONDS."""


class Message(NamedTuple):
    """A record of the busy partition."""

    offset_: int

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return BUSY.topic

    def partition(self) -> int:
        return BUSY.number

    def offset(self) -> int:
        return self.offset_

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def key(self) -> None:
        return None

    def value(self) -> None:
        return None

    def headers(self) -> None:
        return None


class Client:
    """A consumer, and a clock: each second, it gets the next record of the busy partition while that is assigned."""

    def __init__(self, *_: object, **__: object) -> None:
        self.now = 0
        self.assigned: set[int] = set()

    def monotonic(self) -> float:
        return self.now

    def list_topics(self, *_: object) -> None:
        """Know the leaders."""

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.assigned = {each.partition for each in partitions}

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        self.assigned -= {each.partition for each in partitions}

    def consume(self, *_: object) -> list[Message]:
        self.now += 1
        assert self.now < TURNS, "it reads for ever"
        return [Message(self.now - 1)] if BUSY.number in self.assigned else []

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(module, "Consumer", lambda *_, **__: made)
    monkeypatch.setattr(module, "time", made)
    return made


def test_a_busy_partition_does_not_hide_that_another_one_is_silent(client: Client) -> None:
    """Its leader may be gone. A service that writes on behind the end of the first one is no sign of life of it."""
    found: list[Record] = []
    batches = read({}, {BUSY: 0, SILENT: 0}, {BUSY: 3, SILENT: 1})

    with pytest.raises(KafkaException, match="TIMED_OUT"):
        list(map(found.extend, batches))

    assert [0, 1, 2] == [each.offset for each in found]
    assert 3 + SILENT_SECONDS < client.now
