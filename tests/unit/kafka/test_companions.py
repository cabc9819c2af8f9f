"""Placeholder topics: what a broker refuses concerns one topic; no answer, or a denied login, concerns all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from app.errors import NotAllowed, NotUsable, Unreachable
from app.kafka.admin import AdminConnection
from app.kafka.companions import KafkaPlaceholders
from app.model import Partition

A, B, C = Partition("raw", 0), Partition("raw", 1), Partition("other", 0)
MISSING = KafkaError.UNKNOWN_TOPIC_OR_PART


class Broker:
    """Topics with their numbers of partitions, or the errors by which requests for a topic are refused."""

    def __init__(self, topics: Mapping[str, int], refuses: Mapping[str, int], describes: Mapping[str, int]) -> None:
        self.topics = dict(topics)
        self._refuses = refuses
        self._describes = describes

    def poll(self, _: float) -> None:
        """Return no event."""

    def describe_topics(self, names: Any, **_: object) -> dict[str, Future[Any]]:
        return {each: self._described(each) for each in names.topic_names}

    def _described(self, name: str) -> Future[Any]:
        if name not in self.topics:
            return _answer(code=self._describes.get(name, MISSING))
        partitions = [SimpleNamespace(id=at, leader=None, isr=[], replicas=[]) for at in range(self.topics[name])]
        return _answer(SimpleNamespace(partitions=partitions, topic_id="id"))

    def create_topics(self, topics: Sequence[Any], **_: object) -> dict[str, Future[None]]:
        return {each.topic: self._provide(each.topic, each.num_partitions) for each in topics}

    def create_partitions(self, topics: Sequence[Any], **_: object) -> dict[str, Future[None]]:
        return {each.topic: self._provide(each.topic, each.new_total_count) for each in topics}

    def _provide(self, name: str, partitions: int) -> Future[None]:
        if name in self._refuses:
            return _answer(code=self._refuses[name])
        self.topics[name] = partitions
        return _answer()


class Connection(AdminConnection):
    """A connection that is always to this broker, also after it has been replaced."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        super().__init__({"bootstrap.servers": "127.0.0.1:1"})

    def _connect(self) -> None:
        super()._connect()
        self.client = self._broker  # type: ignore[assignment]


def _answer(result: object = None, code: int | None = None) -> Future[Any]:
    future: Future[Any] = Future()
    if code is None:
        future.set_result(result)
    else:
        future.set_exception(KafkaException(KafkaError(code, "said the broker")))
    return future


def made(
    topics: Mapping[str, int], refuses: Mapping[str, int], describes: Mapping[str, int] = {}
) -> tuple[Mapping[Partition, NotUsable], Mapping[str, int]]:
    """Return what is refused, and the topics afterwards."""
    broker = Broker(topics, refuses, describes)
    return KafkaPlaceholders(Connection(broker), "{topic}.at").make_room(iter([A, B, C])), broker.topics


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAllowed),
        (KafkaError.POLICY_VIOLATION, NotUsable),
        (KafkaError.INVALID_REPLICATION_FACTOR, NotUsable),
    ],
)
def test_a_refusal_concerns_what_has_no_room(code: int, kind: type[NotUsable]) -> None:
    """The partitions that have room, and other topics, are served; the cure is the command for a person."""
    refused, topics = made({}, {"raw.at": code})

    assert {A, B} == refused.keys()
    assert {"other.at": 1} == topics
    assert kind is type(refused[A])
    assert "while preparing placeholder topic 'raw.at': said the broker" in refused[A].cause
    assert "--create --topic raw.at --partitions 2; or grant" in refused[A].cure

    refused, topics = made({"raw.at": 1}, {"raw.at": code})

    assert [B] == list(refused)
    assert "--alter --topic raw.at --partitions 2; or grant" in refused[B].cure
    assert {"raw.at": 1, "other.at": 1} == topics


def test_a_name_that_no_topic_can_have() -> None:
    """A pattern may find a topic whose placeholder has a longer name than Kafka allows."""
    too_long = {"raw.at": KafkaError.TOPIC_EXCEPTION}

    refused, topics = made({}, too_long, describes=too_long)

    assert {A, B} == refused.keys()
    assert "correct the topic's name" == refused[A].cure
    assert {"other.at": 1} == topics


def test_another_service_may_be_faster() -> None:
    """The other service of a take-over adds the same partitions."""
    assert {} == made({"raw.at": 1}, {"raw.at": KafkaError.INVALID_PARTITIONS})[0]
    assert {} == made({}, {"raw.at": KafkaError.TOPIC_ALREADY_EXISTS})[0]


@pytest.mark.parametrize(
    ("code", "kind"), [(KafkaError.REQUEST_TIMED_OUT, Unreachable), (KafkaError._AUTHENTICATION, NotAllowed)]
)
def test_what_passes_or_concerns_all_topics_is_tried_again(code: int, kind: type[Exception]) -> None:
    """It says nothing about a topic."""
    with pytest.raises(kind):
        made({}, {"raw.at": code})
