"""What the demo reads from the service's log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from app.cli import main
from app.demo import show
from app.demo.lines import Recipe
from app.demo.show import page_in
from tests.support.waiting import PATIENCE

PROGRAM = """
from app import log
from app.status.server import serve
log.configure("info", group="g")
with serve("127.0.0.1", 0, lambda: None) as url:
    print(url)
"""


def test_the_page_is_where_the_log_says() -> None:
    """The log has the URL of a page on a free port, in a known format; before that line there is no page."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert "" == page_in("") == page_in(json.dumps({"url": "x", "event": "another"}))
    assert done.stdout.strip() == page_in(f"noise\n{done.stderr}more noise")


def test_the_service_of_the_demo_reads_only_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that the shell names for other commands stays untouched."""
    monkeypatch.setenv("WINNOW_KAFKA__BOOTSTRAP_SERVERS", "production:9092")
    log = tmp_path / "config.log"

    def starts_one(*_: object, **__: object) -> int:
        with show._winnow(log, "config", "-c", str(show._configuration(tmp_path, "embedded:9092"))) as command:
            return command.wait(PATIENCE)

    monkeypatch.setattr(show, "show", starts_one)

    assert 0 == CliRunner().invoke(main, ["demo"]).exit_code
    assert "bootstrap.servers: 'embedded:9092'" in log.read_text()


def test_the_demo_runs_with_its_own_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who uses Spark already has variables that name another one, or a Python without Winnow. Addresses and disks stay."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "another")
    seen: list[str] = []

    def starts(*_: object, environment: dict[str, str]) -> None:
        seen.extend(name for name, value in environment.items() if value == "another")

    monkeypatch.setattr(show, "ManagedProcess", starts)
    show._winnow(tmp_path / "run.log", "run")

    assert ["SPARK_LOCAL_IP"] == seen


def test_the_offsets_stay_while_the_coordinator_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The board shows the last figure until the group's coordinator responds again."""
    answers = iter([5, None, 7, 7])
    shown: list[int] = []

    class AnsweringConsumer:
        def committed(self, partitions: Sequence[TopicPartition], seconds: float) -> list[TopicPartition]:
            if (answer := next(answers)) is None:
                raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
            return [TopicPartition("raw-logs", 0, answer), TopicPartition("raw-logs", 1)]

    (tmp_path / "winnow.log").touch()
    doubles = {
        "ManagedProcess": SimpleNamespace(poll=partial(next, iter([None, None, None, 0]))),
        "BackgroundVerification": SimpleNamespace(latest=lambda *_: None, finish=lambda: None, done=True),
        "Consumer": AnsweringConsumer(),
        "Board": SimpleNamespace(show=lambda done, _: shown.append(done)),
    }
    for name, double in doubles.items():
        monkeypatch.setattr(show, name, lambda *_, double=double, **__: nullcontext(double))
    broker: Any = SimpleNamespace(bootstrap="embedded:9092")

    show._cleanse(tmp_path / "winnow.yaml", broker, Recipe(partitions=8, count=7, bad=0.0, enveloped=0.0))

    assert [5, 5, 7] == shown
