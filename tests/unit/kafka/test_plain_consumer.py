"""The consumer that works everywhere; `tests/integration/test_conformance.py` shows the rest on a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Message

from app.kafka.plain.consumer import PlainConsumer
from tests.fakes import make_task_config


class Forbidden:
    """A client to which only a broker's error arrives."""

    def consume(self, _most: int, _seconds: float) -> list[Message]:
        return [Message(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))]


def test_an_error_of_no_partition_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a broker's, and librdkafka reconnects by itself."""
    consumer = PlainConsumer(make_task_config())
    consumer.close()
    monkeypatch.setattr(consumer, "client", Forbidden())

    chunk = consumer.poll(0.0)

    assert chunk is not None
    assert (0, [], []) == (len(chunk.values), chunk.ends, chunk.failures)
