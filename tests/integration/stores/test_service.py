"""The service with a store or a mirror that fails meanwhile: nothing is lost, and a failed mirror stops nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import structlog

from app.embedded.broker import Cluster
from app.offsets import mirrors
from tests.conftest import Topics
from tests.independent import committed
from tests.integration.in_process import Running, run
from tests.integration.stores.stage import StoreStage, lines
from tests.servers.redis import Redis
from tests.support.waiting import until

KAFKA = {"name": "kafka"}


@pytest.fixture
def mirror(redis: Redis) -> dict[str, Any]:
    return {"name": "redis", "url": redis.url}


def outages(logged: Iterable[Mapping[str, Any]]) -> int:
    return sum(each["event"] == "kafka_unavailable" for each in logged)


def test_a_store_that_is_down_at_the_start_and_for_a_while(
    broker: Cluster, topics: Topics, redis: Redis, mirror: dict[str, Any]
) -> None:
    """The service waits for its store, says why, and recovers. Every line arrives at least once."""
    stage = StoreStage(broker, topics, mirror, round_interval="5s")  # the second outage happens during a round
    stage.write(0, 0, 3)
    redis.kill()
    with structlog.testing.capture_logs() as logged, Running(stage.config) as stop:
        until(lambda: any("Redis is not responding" in each.get("reason", "") for each in logged))
        redis.start()
        until(lambda: stage.cleansed().get(0) == lines(0, 0, 1, 2))
        until(lambda: stage.remembered() == {0: 3, 1: 0})

        waited = outages(logged)
        redis.kill()
        stage.write(0, 3, 5)
        # A running round goes on without the store; between two rounds, the driver waits for it again.
        until(lambda: lines(0, 4)[0] in stage.cleansed()[0] or outages(logged) > waited)
        redis.start()
        until(lambda: stage.remembered() == {0: 5, 1: 0})
        assert 0 == stop()

    assert set(lines(0, *range(5))) == set(stage.cleansed()[0])


def test_without_a_store_rounds_go_on(broker: Cluster, topics: Topics) -> None:
    """Without a store, each round starts where the previous one ended."""
    stage = StoreStage(broker, topics, {"name": "none"})
    stage.write(0, 0, 3)
    with structlog.testing.capture_logs() as logged, Running(stage.config) as stop:
        until(lambda: len([each for each in logged if each["event"] == "round"]) >= 2)
        stage.write(0, 3, 5)
        until(lambda: lines(0, 4)[0] in stage.cleansed()[0])
        until(lambda: len([each for each in logged if each["event"] == "round"]) >= 4)
        assert 0 == stop()

    assert lines(0, *range(5)) == stage.cleansed()[0]


def mirrored(broker: Cluster, topics: Topics, mirror: dict[str, Any], guarantee: str = "exactly-once") -> StoreStage:
    stage = StoreStage(broker, topics, KAFKA)
    stage.config["delivery.guarantee"] = guarantee
    stage.config["offsets"] = {"store": KAFKA, "mirrors": [mirror]}
    return stage


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_mirror_holds_what_is_committed(
    broker: Cluster, topics: Topics, mirror: dict[str, Any], guarantee: str
) -> None:
    """With either guarantee, a tool that reads the mirror sees the group's committed offsets."""
    stage = mirrored(broker, topics, mirror, guarantee)
    stage.write(0, 0, 3)

    assert 0 == stage.run()

    truth = {place[1]: offset for place, offset in committed(broker.bootstrap, stage.sink, stage.source).items()}
    assert {0: 3, 1: 0} == truth
    until(lambda: stage.remembered(mirror) == truth, "the mirror, for which a task waits only a moment")


def test_a_mirror_that_is_down_stops_nothing(
    broker: Cluster, topics: Topics, redis: Redis, mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its mirror the service continues, exactly once, and updates the mirror when it is back."""
    monkeypatch.setattr(mirrors, "LAST_BACKOFF", 0.5)
    stage = mirrored(broker, topics, mirror)
    stage.write(0, 0, 3)
    with structlog.testing.capture_logs() as logged, Running(stage.config) as stop:
        until(lambda: stage.remembered(mirror) == {0: 3, 1: 0})
        redis.kill()
        stage.write(0, 3, 5)
        until(lambda: lines(0, 4)[0] in stage.cleansed()[0])
        until(lambda: any(each["event"] == "mirror_failing" for each in logged))
        redis.start()
        until(lambda: stage.remembered(mirror) == {0: 5, 1: 0})
        until(lambda: any(each["event"] == "mirror_caught_up" for each in logged))
        assert 0 == stop()

    assert lines(0, *range(5)) == stage.cleansed()[0]


def test_the_driver_catches_a_mirror_up(broker: Cluster, topics: Topics, redis: Redis, mirror: dict[str, Any]) -> None:
    """The next discovery writes the offsets that tasks could not mirror, because they died or the mirror was down."""
    stage = mirrored(broker, topics, mirror)
    stage.write(0, 0, 3)
    redis.kill()
    assert 0 == run(stage.config)[0]
    until(lambda: not any("winnow-mirror" in each.name for each in threading.enumerate()), "the mirrors to give up")
    redis.start()
    assert {} == stage.remembered(mirror)

    assert 0 == run(stage.config)[0]

    until(lambda: stage.remembered(mirror) == {0: 3, 1: 0}, "the mirror, for which the driver waits only a moment")
