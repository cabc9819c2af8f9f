"""The generator of the Compose file: a command that feeds a topic at a steady rate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import cleanse, ends, read
from tests.servers.flume import FlumeAgent
from tests.support.waiting import PATIENCE, until


def feed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "app.demo.feed", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_lines_at_a_rate(broker: Cluster, topics: Topics) -> None:
    """Each partition gets varied lines, most of them good, and the command ends after the given seconds."""
    topic = topics("raw", 2)

    ended = feed("--bootstrap", broker.bootstrap, "--topic", topic, "--rate", "1000", "--seconds", "2")

    assert 0 == ended.returncode, ended.stderr
    records = read(broker.bootstrap, topic)
    assert {0, 1} == {record.partition for record in records}
    assert 100 <= len(records) <= 2_100
    good = [record for record in records if record.value is not None and cleanse(record.value) is not None]
    assert 0.9 * len(records) < len(good)


def test_a_topic_that_is_not_there(broker: Cluster) -> None:
    """A missing topic ends the command with one clear line, without an endless wait."""
    ended = feed("--bootstrap", broker.bootstrap, "--topic", "no-such-topic")

    assert 0 != ended.returncode
    assert "topic 'no-such-topic' does not exist" in ended.stderr


def test_lines_through_flume(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A real Flume agent takes the lines at its socket, as in the Compose file, and brings them to Kafka."""
    topic = topics("raw")
    with FlumeAgent(tmp_path, broker.bootstrap, topic, avro=False) as agent:
        ended = feed("--flume", f"127.0.0.1:{agent.port}", "--rate", "1000", "--seconds", "2")
        assert 0 == ended.returncode, ended.stderr
        until(lambda: sum(ends(broker.bootstrap, topic).values()) >= 100, "a hundred records")
        agent.stop()

    lines = [record.value or b"" for record in read(broker.bootstrap, topic)]
    assert 0.9 * len(lines) < len([each for each in lines if cleanse(each) is not None])


def test_nowhere_to_write() -> None:
    """Without an address the command says which it takes."""
    ended = feed("--topic", "raw")

    assert 2 == ended.returncode
    assert "--bootstrap and --topic, or --flume" in ended.stderr
