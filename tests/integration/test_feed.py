"""The generator of the Compose file: a command that feeds a topic at a steady rate."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import cleanse, ends, read
from tests.servers.flume import FlumeAgent
from tests.support.waiting import PATIENCE, until

COMMAND = (sys.executable, "-m", "app.demo.feed")


def feed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to completion."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)


@contextlib.contextmanager
def feeding(*arguments: str) -> Iterator[None]:
    """Run the command while the block runs."""
    with subprocess.Popen([*COMMAND, *arguments]) as process:
        try:
            yield
        finally:
            process.kill()


def test_lines_at_a_rate(broker: Cluster, topics: Topics) -> None:
    """Each partition gets varied lines, most of them valid."""
    topic = topics("raw", 2)

    with feeding("--bootstrap", broker.bootstrap, "--topic", topic, "--rate", "1000"):
        until(lambda: all(end >= 100 for end in ends(broker.bootstrap, topic).values()), "lines in both partitions")

    records = read(broker.bootstrap, topic)
    good = [record for record in records if record.value is not None and cleanse(record.value) is not None]
    assert 0.9 * len(records) < len(good)


def test_a_rate_is_a_limit(broker: Cluster, topics: Topics) -> None:
    """The command ends after the given seconds and writes no more than the rate allows."""
    topic = topics("raw", 2)

    ended = feed("--bootstrap", broker.bootstrap, "--topic", topic, "--rate", "1000", "--seconds", "2")

    assert 0 == ended.returncode, ended.stderr
    assert sum(ends(broker.bootstrap, topic).values()) <= 2_100


def test_a_topic_that_is_not_there(broker: Cluster) -> None:
    """A missing topic ends the command with one clear line instead of an endless wait."""
    ended = feed("--bootstrap", broker.bootstrap, "--topic", "no-such-topic")

    assert 0 != ended.returncode
    assert "topic 'no-such-topic' does not exist" in ended.stderr


def test_lines_through_flume(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """As in the Compose file, a real Flume agent receives the lines at its socket and writes them to Kafka."""
    topic = topics("raw")
    with FlumeAgent(tmp_path, broker.bootstrap, topic, avro=False) as agent:
        with feeding("--flume", f"127.0.0.1:{agent.port}", "--rate", "1000"):
            until(lambda: sum(ends(broker.bootstrap, topic).values()) >= 100, "a hundred records")
        agent.stop()

    lines = [record.value or b"" for record in read(broker.bootstrap, topic)]
    assert 0.9 * len(lines) < len([each for each in lines if cleanse(each) is not None])


def test_nowhere_to_write() -> None:
    """Without an address the command names its options."""
    ended = feed("--topic", "raw")

    assert 2 == ended.returncode
    assert "--bootstrap and --topic, or --flume" in ended.stderr
