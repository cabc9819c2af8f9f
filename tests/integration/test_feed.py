"""The generator of the Compose file: a command that feeds a topic at a steady rate."""

from __future__ import annotations

import subprocess
import sys

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import cleanse, read


def feed(broker: Cluster, topic: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "app.demo.feed", "--bootstrap", broker.bootstrap, "--topic", topic, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_lines_at_a_rate(broker: Cluster, topics: Topics) -> None:
    """Each partition gets varied lines, most of them good, and the command ends after the given seconds."""
    topic = topics("raw", 2)

    ended = feed(broker, topic, "--rate", "1000", "--seconds", "2")

    assert 0 == ended.returncode, ended.stderr
    records = read(broker.bootstrap, topic)
    assert {0, 1} == {record.partition for record in records}
    assert 100 <= len(records) <= 2_100
    good = [record for record in records if record.value is not None and cleanse(record.value) is not None]
    assert 0.9 * len(records) < len(good)


def test_a_topic_that_is_not_there(broker: Cluster) -> None:
    """A missing topic ends the command with one clear line, without an endless wait."""
    ended = feed(broker, "no-such-topic")

    assert 0 != ended.returncode
    assert "topic 'no-such-topic' does not exist" in ended.stderr
