"""The status page of a real service on a real Kafka: its figures match Kafka's, and an outage does not silence it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, line, produce
from tests.integration.service import Winnow, settings
from tests.integration.status_page import ask, metrics
from tests.servers.kafka_tool import kafka_tool
from tests.support.waiting import until

pytestmark = pytest.mark.integration


def told_by_kafka(bootstrap: str, group: str) -> dict[str, tuple[int, int, int]]:
    """Return committed offset, end and lag of each partition, as printed by `kafka-consumer-groups --describe`."""
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    printed = kafka_tool(tool, "--bootstrap-server", bootstrap, "--describe", "--group", group)
    rows = [row.split() for row in printed.splitlines() if row.startswith(group)]
    return {row[2]: (int(row[3]), int(row[4]), int(row[5])) for row in rows}


def test_the_figures_are_those_of_kafka(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Counts are the numbers of records. Lag, offsets and ends match Kafka's own tool, also behind control records."""
    source, sink, dead = topics("source", 2), topics("sink", 2), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    good = [Written(line(number, 0), b"k", 0) for number in range(300)]
    produce(broker.bootstrap, source, [*good, Written(b"bad", b"k", 0)])

    with Winnow(config, tmp_path) as service:
        url = service.wait_for("status_page_up")["url"]
        assert 200 == ask(f"{url}healthz")[0]
        until(lambda: 200 == ask(f"{url}readyz")[0], "it is ready")
        until(lambda: metrics(url).get(("winnow_records_in_total", "0", source)) == 301, "all is cleansed")
        lags = [("kafka_consumergroup_group_lag", number, source) for number in ("0", "1")]
        until(lambda: list(map(metrics(url).get, lags)) == [0, 0], "both ends are committed")
        until(lambda: metrics(url).get(("winnow_commit_seconds_count",), 0) > 0, "tasks have told of their time")
        found, told = metrics(url), told_by_kafka(broker.bootstrap, sink)
        status = json.loads(ask(f"{url}api/status")[1])

    assert (300, 1) == (
        found["winnow_records_out_total", "0", source],
        found["winnow_dead_letters_total", "0", "no_marker", source],
    )
    # Also during a round, which lasts a minute here.
    assert 0 < found["winnow_task_wait_seconds_total", "0"]
    assert 0 < found["winnow_parse_seconds_sum",] < found["winnow_task_wait_seconds_total", "0"] + 60
    assert 0 < found["winnow_transactions_committed_total", "0", source]
    assert {"0", "1"} == told.keys()
    for partition, (committed, end, lag) in told.items():
        assert committed == found["kafka_consumergroup_group_offset", partition, source]
        assert end == found["kafka_partition_latest_offset", partition, source]
        assert lag == found["kafka_consumergroup_group_lag", partition, source] == 0
        assert 0 == found["winnow_lag_seconds", partition, source]
    assert ["ok", "ok"] == [each["condition"] for each in status["partitions"]]


def test_a_taken_port_ends_the_start(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """The second service names the taken port and the cure before Spark starts, and exits with 3."""
    source, sink, dead = topics("source"), topics("sink"), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)

    with Winnow(config, tmp_path) as first:
        port = int(first.wait_for("status_page_up")["url"].rstrip("/").rpartition(":")[2])
        with Winnow(config | {"http": {"port": port}}, tmp_path) as second:
            assert 3 == second.code()

    assert any(f"port {port}" in each and "http.port" in each for each in second.noise)
