"""A real Prometheus, from Debian. It scrapes a page every five seconds, and evaluates rules every second."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.embedded.broker import HeldPorts
from app.status.metrics import exposition
from app.status.snapshot import Snapshot
from tests.support.waiting import PATIENCE

PROGRAM, TOOL = shutil.which("prometheus"), shutil.which("promtool")

needs_promtool = pytest.mark.skipif(TOOL is None, reason="promtool of Debian's package prometheus is not installed")


def promtool(*arguments: str) -> None:
    """Run `promtool` in the folder of the repository. Raises AssertionError if it finds a fault."""
    folder = Path(__file__).parents[1]
    done = subprocess.run([TOOL or "", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr


def scraped(snapshot: Snapshot, metrics: Collection[str], target: Mapping[str, str]) -> list[dict[str, str]]:
    """Return what Prometheus stores of some metrics of a service, as the input of a test: with the target's labels."""
    return [
        {"series": f"{sample.name}{labels({**sample.labels, **target})}", "values": f"{sample.value}x40"}
        for family in text_string_to_metric_families(exposition(snapshot, snapshot.at).decode())
        for sample in family.samples
        if sample.name in metrics
    ]


def labels(of: Mapping[str, str]) -> str:
    """Return labels as PromQL writes them."""
    return f"{{{', '.join(f'{name}={json.dumps(value)}' for name, value in of.items())}}}"


class Prometheus:
    """
    A server on loopback. A context manager that leaves no process behind.

    Args:
        folder: for its configuration and its data.
        target: host and port that it scrapes.
        rules: the rule file.
    """

    def __init__(self, folder: Path, target: str, rules: Path) -> None:
        self._folder = folder
        self._ports = HeldPorts(1)
        self._address = f"127.0.0.1:{self._ports[0]}"
        configuration = {
            # A scrape that takes longer than its timeout ends all alerts. No timeout is longer than the interval.
            "global": {"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "winnow", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))

    def __enter__(self) -> Self:
        """Start, and wait until it responds."""
        assert PROGRAM is not None, "install Debian's package prometheus"
        command = [
            PROGRAM,
            f"--config.file={self._folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready():
            assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
            assert time.monotonic() < deadline, "Prometheus is not ready"
            time.sleep(0.2)
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, expression: str) -> dict[str, float]:
        """Return the value of an expression for each `topic-partition`, or under an empty key without one."""
        found = self._data("query", query=expression)["result"]
        return {
            "-".join(each["metric"][name] for name in ("topic", "partition") if name in each["metric"]): float(
                each["value"][1]
            )
            for each in found
        }

    def firing(self) -> list[str]:
        """Return the name of each firing alert, repeated for each instance."""
        return sorted(
            each["labels"]["alertname"] for each in self._data("alerts")["alerts"] if each["state"] == "firing"
        )

    def fired(self, alert: str) -> int:
        """Return how often an alert has started to fire, for any cause."""
        return int(sum(self.ask(f'changes(ALERTS_FOR_STATE{{alertname="{alert}"}}[1h]) + 1').values()))

    def _data(self, what: str, **query: str) -> Any:  # of any shape
        url = f"http://{self._address}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]
