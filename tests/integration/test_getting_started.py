"""docs/getting-started.md, followed from the first command to the last on a real Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from app.embedded.broker import Cluster, HeldPorts
from tests.integration.service import QUICK_START
from tests.integration.status_page import is_ready
from tests.support.docs import commands
from tests.support.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/getting-started.md"
SERVICE = ".venv/bin/winnow run "


def test_getting_started(broker: Cluster, tmp_path: Path) -> None:
    """Each command succeeds with the output shown on the page. Ctrl-C ends the service with 0."""
    (port,) = held = HeldPorts(1)
    assert held  # the port is reserved while this lives
    (tmp_path / ".venv").symlink_to(sys.prefix)
    text = PAGE.read_text().replace("localhost:9092", broker.bootstrap)
    text = text.replace("127.0.0.1:8090", f"127.0.0.1:{port}")
    first, *rest = commands(text)
    assert ("make setup", "") == first  # it created the environment of this test
    start = next(place for place, (command, _) in enumerate(rest) if command.startswith(SERVICE))
    before, (service, _), after = rest[:start], rest[start], rest[start + 1 :]

    until(lambda: answers(broker), "the broker has made the topic of the groups' offsets")
    printed = {command: follow(command, shown, tmp_path) for command, shown in before}
    with running(f"{service} --set http.port={port}", tmp_path):
        until(lambda: is_ready(f"http://127.0.0.1:{port}/"), "the service is ready")
        printed |= {command: follow(command, shown, tmp_path) for command, shown in after}

    (read,) = (output for command, output in printed.items() if "Consumer(" in command)
    assert [4, 4, 4] == [line.count("|") for line in read.splitlines()]


def answers(broker: Cluster) -> bool:
    """Ask for a committed offset: a broker that has just started creates the offsets topic only then."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "anybody", "log_level": 0})
    try:
        return bool(consumer.committed([TopicPartition("any", 0)], PATIENCE))
    except KafkaException:
        return False
    finally:
        consumer.close()


def follow(command: str, shown: str, folder: Path) -> str:
    """Run a command to completion and return its output."""
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, f"{command}\n{done.stdout}{done.stderr}"
    assert shown in done.stdout
    return done.stdout


@contextmanager
def running(command: str, folder: Path) -> Iterator[None]:
    """Run the service in its own terminal, and press Ctrl-C."""
    log = folder / "service.log"
    with log.open("wb") as output:
        service = subprocess.Popen(
            # A shell that runs tests in the background makes its children ignore Ctrl-C.
            ["env", "--default-signal=INT", *command.split()],
            cwd=folder,
            env=environment(),
            stderr=output,
            start_new_session=True,
        )
    try:
        yield
        os.killpg(service.pid, signal.SIGINT)
        assert 0 == service.wait(PATIENCE), log.read_text()
    except BaseException:
        print(log.read_text(errors="replace"))  # pytest shows it
        raise
    finally:
        if service.poll() is None:
            os.killpg(service.pid, signal.SIGKILL)
            service.wait()


def environment() -> dict[str, str]:
    """The pages' modules are found from the root of the clone, and the tests' JVMs start quickly."""
    return {**os.environ, **QUICK_START, "PYTHONPATH": str(ROOT)}
