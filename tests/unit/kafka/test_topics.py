"""Which topics are a source."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from app.kafka.topics import KafkaTopics


class Connection:
    """A connection to a cluster with these topics, each of one partition."""

    def __init__(self, *topics: str) -> None:
        self._topics = topics
        self.client = self

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics=dict.fromkeys(self._topics))

    def describe_topics(self, wanted: Any, request_timeout: float) -> dict[str, Future[Any]]:
        led = SimpleNamespace(id=0, leader=SimpleNamespace(id=1))
        found = {name: Future[Any]() for name in wanted.topic_names}
        for future in found.values():
            future.set_result(SimpleNamespace(topic_id="id", partitions=[led]))
        return found

    def wait(self, future: Future[Any]) -> Any:
        return future.result()


def test_a_pattern_never_matches_an_internal_topic() -> None:
    """`.*` does not read the group's own offsets, which would grow with every commit; a name may."""
    topics = KafkaTopics(Connection("raw", "_raw", "__consumer_offsets", "__transaction_state"))  # type: ignore[arg-type]

    assert {"raw", "_raw"} == topics.source_topics([], ".*").keys()
    assert {"__consumer_offsets"} == topics.source_topics(["__consumer_offsets"], None).keys()
