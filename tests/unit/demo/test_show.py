"""What the demo reads from the service's log."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from app.cli import main
from app.demo import show
from app.demo.show import page_in

PROGRAM = """
from app import log
from app.status.server import StatusServer
log.configure("info", group="g")
with StatusServer("127.0.0.1", 0, lambda: None) as server:
    print(server.url)
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
            return command.wait(60)

    monkeypatch.setattr(show, "show", starts_one)

    assert 0 == CliRunner().invoke(main, ["demo"]).exit_code
    assert "bootstrap.servers: 'embedded:9092'" in log.read_text()


def test_the_offsets_stay_while_the_coordinator_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The board shows the last figure until the group's coordinator responds again."""
    answers = iter([5, None, 7])

    class AnsweringConsumer:
        def __init__(self, settings: object) -> None:
            pass

        def committed(self, partitions: Sequence[TopicPartition], seconds: float) -> list[TopicPartition]:
            if (answer := next(answers)) is None:
                raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
            return [TopicPartition("raw-logs", 0, answer), TopicPartition("raw-logs", 1)]

        def close(self) -> None:
            pass

    monkeypatch.setattr(show, "Consumer", AnsweringConsumer)

    committed = show.Committed("nowhere")

    assert [5, 5, 7] == [committed.total(), committed.total(), committed.total()]
