"""`winnow run` with an offset store and a mirror outside Kafka, on a real Spark whose workers write to both."""

from __future__ import annotations

from pathlib import Path

from app.embedded.broker import Cluster, HeldPorts
from app.events import Event
from tests.conftest import Topics
from tests.integration.service import Winnow
from tests.integration.stores.stage import StoreStage, lines
from tests.servers.redis import Redis
from tests.support.waiting import until


def test_workers_write_store_and_mirrors(broker: Cluster, topics: Topics, redis: Redis, tmp_path: Path) -> None:
    """The store and a working mirror have the offsets. Worker and driver report a mirror that refuses connections."""
    stage = StoreStage(broker, topics, {"name": "redis", "url": redis.url})
    folder = tmp_path / "mirror"
    folder.mkdir()
    mirror = {"name": "files", "url": f"file://{folder}"}
    ports = HeldPorts(1)
    gone = {"name": "redis", "url": f"redis://127.0.0.1:{ports[0]}"}
    stage.config["offsets"]["mirrors"] = [mirror, gone]
    stage.write(0, 0, 5)

    with Winnow(stage.config, tmp_path) as service:
        until(lambda: {0: 5, 1: 0} == stage.remembered() == stage.remembered(mirror), "the offsets")
        service.wait_for(Event.MIRROR_FAILING.key)
        code = service.stop()

    assert 0 == code
    assert lines(0, *range(5)) == stage.cleansed()[0]
    assert {"redis"} == {event["mirror"] for event in service.logged(Event.MIRROR_FAILING.key)}
