"""A real Prometheus watches a real run: a healthy service fires no alert, and each fault fires its alert once."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from app.cli import main
from app.embedded.broker import Broker, HeldPorts
from tests.independent import Written, line, produce
from tests.integration.service import Winnow, settings
from tests.prometheus import PROGRAM, Prometheus
from tests.support.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(PROGRAM is None, reason="Debian's package prometheus is not installed"),
]

DAY = 86_400
RULES = Path(__file__).parents[3] / "docker/alerts.yaml"


def impatient(folder: Path) -> Path:
    """Return the rules with a scrape or two in place of minutes."""
    text = re.sub(r"for: \d+m", "for: 6s", RULES.read_text()).replace("[2m]", "[10s]")
    file = folder / "alerts.yaml"
    file.write_text(text.replace("_age_seconds > 300", "_age_seconds > 1"))
    return file


class MonitoredService:
    """A broker, a service that can be restarted, and a Prometheus that watches it."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self._ports = HeldPorts(1)
        (self.port,) = self._ports
        self.raw = broker.create_topic("raw", 3, {"retention.ms": str(7 * DAY * 1000)})
        for name in ("clean", "dead"):
            broker.create_topic(name)
        self.prometheus = Prometheus(folder, f"127.0.0.1:{self.port}", impatient(folder))

        self.config = settings(broker.bootstrap, group="g", sources=["raw"], sink="clean", dead="dead")
        self.config |= {"http": {"port": self.port}}

    def service(self) -> Winnow:
        return Winnow(self.config, self.folder)

    def winnow(self, command: str) -> None:
        file = self.folder / "command.yaml"
        file.write_text(json.dumps(self.config))
        assert 0 == CliRunner().invoke(main, [command, "-c", str(file)]).exit_code

    def produce(self, partition: int, *values: bytes, age: float = 0) -> None:
        at = round((time.time() - age) * 1000)
        produce(self.broker.bootstrap, self.raw, [Written(value, b"k", partition, at) for value in values])

    def lose(self, partition: int) -> None:
        """Delete all records of a partition, as retention does."""
        end = TopicPartition("raw", partition, -1)
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for future in admin.delete_records([end]).values():
            future.result(PATIENCE)

    def until(self, *alerts: str) -> None:
        """Wait until exactly these alerts fire."""
        until(lambda: self.prometheus.firing() == sorted(alerts), f"only {alerts} fire")

    def reads(self, metric: str, partition: str, value: float) -> None:
        """Wait until Prometheus has read this value."""
        until(lambda: self.prometheus.ask(metric).get(partition) == value, f"{metric} is {value}")


@pytest.fixture
def monitored(mortal: Broker, tmp_path: Path) -> Iterator[MonitoredService]:
    monitored = MonitoredService(mortal, tmp_path)
    with monitored.prometheus:
        yield monitored


def test_each_fault_fires_its_alert_once(monitored: MonitoredService) -> None:
    """Each fault fires its own alert once, and no other."""
    monitored.produce(0, *(line(number, 0) for number in range(100)))
    monitored.produce(2, line(0, 2), line(1, 2))
    with monitored.service() as first:
        monitored.reads("winnow_records_in_total", "raw-0", 100)
        monitored.reads("winnow_lag_offsets", "raw-2", 0)
        monitored.until()

        # What waits in a paused service has used up four of its topic's seven days of retention.
        monitored.winnow("pause")
        monitored.reads("winnow_partition_state", "raw-2", 4)
        monitored.produce(2, line(2, 2), age=4 * DAY)
        monitored.until("WinnowRetentionNear")
        monitored.winnow("resume")
        monitored.until()
        first.stop()
    monitored.until("WinnowNoHeartbeat")

    # Retention deletes what waits while no service runs, so an operator must act.
    monitored.produce(2, line(3, 2))
    monitored.lose(2)
    fire = ["WinnowPartitionBlocked", "WinnowRecordsLost"]
    with monitored.service():
        monitored.until(*fire)
        monitored.reads("winnow_lost_offsets_total", "raw-2", 1)

        monitored.produce(0, *[b"rubbish"] * 10)
        monitored.reads("winnow_dead_letters_total", "raw-0", 10)  # its first sample is not an increase yet
        monitored.produce(0, *[b"rubbish"] * 50)
        fire.append("WinnowDeadLetters")
        monitored.until(*fire)
        assert monitored.prometheus.ask("winnow_commit_seconds_count")[""] > 0

        own: dict[str, str | int] = {"transactional.id": "upstream", "transaction.timeout.ms": 600_000}
        upstream = Producer({"bootstrap.servers": monitored.broker.bootstrap, **own})
        upstream.init_transactions(PATIENCE)
        upstream.begin_transaction()
        upstream.produce("raw", line(1, 1), partition=1)
        upstream.flush(PATIENCE)
        monitored.until(*fire, "WinnowUpstreamTransactionOpen")
        upstream.commit_transaction(PATIENCE)
        monitored.until(*fire)

        monitored.broker.kill()
        monitored.until(*fire, "WinnowNotReady")

    once = {alert: monitored.prometheus.fired(alert) for alert in [*fire, "WinnowUpstreamTransactionOpen"]}
    assert {1} == set(once.values()), once
