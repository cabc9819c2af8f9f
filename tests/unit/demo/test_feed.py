"""The generator keeps its rate, whichever it is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import click
import pytest
from confluent_kafka import KafkaError, KafkaException

from app.demo.feed import QUEUED, TURN, paced, to_kafka
from tests.fakes.simulation import SimulatedTime


@pytest.fixture(autouse=True)
def _simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimulatedTime()
    monkeypatch.setattr("app.demo.feed.time.monotonic", clock)
    monkeypatch.setattr("app.demo.feed.time.sleep", clock.pass_by)


@pytest.mark.parametrize("rate", [1, 7, 10, 999])
def test_a_rate_is_kept(rate: int) -> None:
    """Also one of less than a line per tick: it once wrote none."""
    written = [len(lines) for _, lines in paced(2, rate, 10.01)]

    assert rate * 10 <= sum(written) <= rate * 10 + max(1, rate // 10)


def test_the_partitions_take_turns() -> None:
    """Each gets its share."""
    assert [0, 1, 0, 1] == [number for number, _ in islice(paced(2, 100, 10), 4)]


class FullProducer:
    """A producer whose broker takes 1,000 lines at each poll, and does not take the last three."""

    def __init__(self, _settings: object) -> None:
        self.queued = 0

    def __len__(self) -> int:
        return self.queued

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None})})

    def produce(self, *_: object, on_delivery: Callable[..., object], timestamp: int) -> None:
        assert 0 == timestamp, "the current time"
        self.queued += 1
        assert self.queued <= QUEUED + TURN, "BufferError: Local: Queue full"

    def poll(self, _seconds: float) -> None:
        self.queued = max(0, self.queued - 1_000)

    def flush(self, _seconds: float) -> int:
        return 3


def test_a_broker_that_is_too_slow_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it did not take at the end is told."""
    monkeypatch.setattr("app.demo.feed.Producer", FullProducer)

    with pytest.raises(click.ClickException, match="3 lines did not reach raw at b:1: no response"):
        to_kafka("b:1", "raw", 2_500_000, 0.1)


def test_a_broker_that_does_not_respond_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one line instead of a traceback."""

    def list_topics(*_: object, **_more: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))

    monkeypatch.setattr(FullProducer, "list_topics", list_topics)
    monkeypatch.setattr("app.demo.feed.Producer", FullProducer)

    with pytest.raises(click.ClickException, match="Kafka is not responding at b:1: Failed to get metadata"):
        to_kafka("b:1", "raw", 1, 1)
