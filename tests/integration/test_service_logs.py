"""The log of a real service: driver, workers and Spark write lines of one format, and Spark's page names each round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import Cluster, HeldPorts
from tests.conftest import Topics
from tests.independent import Written, line, produce
from tests.integration.service import WinnowOnSpark, settings
from tests.integration.status_page import ask, metrics
from tests.support.waiting import until

pytestmark = pytest.mark.integration


def jobs(port: int) -> list[dict[str, Any]]:
    applications = f"http://127.0.0.1:{port}/api/v1/applications"
    (application,) = json.loads(ask(applications)[1])
    found: list[dict[str, Any]] = json.loads(ask(f"{applications}/{application['id']}/jobs")[1])
    return found


def test_every_line_has_one_shape(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Every line has time, level, event and group. Spark's messages and its page name a task's round."""
    source, sink, dead = topics("source", 2), topics("sink"), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    ports = HeldPorts(1)
    config["spark"] |= {"spark.log.level": "INFO", "spark.ui.enabled": True, "spark.ui.port": ports[0]}
    produce(broker.bootstrap, source, [Written(line(0, 0), b"k", 0)])

    with WinnowOnSpark(config, tmp_path) as service:
        url = service.wait_for("status_page_up")["url"]
        until(lambda: metrics(url).get(("winnow_records_in_total", "0", source)) == 1, "all is cleansed")
        named = [job["description"] for job in until(lambda: jobs(ports[0]), "Spark's page")]
        service.stop()

    assert [] == service.noise
    of_spark = [event for event in service.events if event.get("logger", "").startswith("org.apache.spark")]
    assert len(of_spark) > 10
    for event in service.events:
        assert {"timestamp", "level", "event", "group"} <= event.keys()
        assert sink == event["group"]
        assert event["level"] in ("debug", "info", "warning", "error")
        assert event["timestamp"].endswith("Z")
    assert {"1"} <= {event["round"] for event in of_spark if "task_name" in event and "round" in event}
    assert f"round 1: {source} 0-1" == named[-1]
