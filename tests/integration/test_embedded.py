"""The embedded Kafka starts, restarts with its data, and never outlives the process that started it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from app.embedded.broker import Broker, BrokerFailed, Cluster
from app.embedded.jars import Bundle, FetchFailed, JavaMissing, fetch_jars
from tests.conftest import QUICK_JAVA
from tests.support.waiting import PATIENCE

RATHER_STEADY = {"broker.session.timeout.ms": "15000"}
"""A busy machine is late with heartbeats, and a topic with three replicas takes three nodes."""
# A shell starts background jobs with SIGINT ignored, and Python keeps that. A foreground parent does not ignore it.
HOLD_A_BROKER = f"""
import signal, sys
from app.embedded.broker import Broker
signal.signal(signal.SIGINT, signal.default_int_handler)
with Broker(java={QUICK_JAVA}) as broker:
    print(broker.pids[0], broker.folder, flush=True)
    sys.stdin.read()
"""


def write(cluster: Cluster, topic: str, value: bytes) -> None:
    """Produce one record and wait for its acknowledgement."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(topic, value, partition=0)

    assert producer.flush(PATIENCE) == 0


def read(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    """Return the first records of a topic."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(count, PATIENCE)]
    consumer.close()
    return values


def gone(process: psutil.Process, seconds: float = PATIENCE) -> bool:
    """Wait for a process to end."""
    try:
        process.wait(seconds)
    except psutil.TimeoutExpired:
        return False
    return True


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def test_restart_keeps_ports_and_data() -> None:
    """After a stop or a SIGKILL, a new start serves the same records at the same address."""
    with Broker(java=QUICK_JAVA) as broker:
        address, topic = broker.bootstrap, broker.create_topic("kept")
        write(broker, topic, b"before the stop")
        broker.stop()
        broker.start()
        write(broker, topic, b"before the kill")
        broker.kill()
        broker.start()

        assert address == broker.bootstrap
        assert [b"before the stop", b"before the kill"] == read(broker, topic, 2)


def test_nothing_is_left_after_the_block() -> None:
    """After the block, even if it fails, no process and no folder is left."""
    with pytest.raises(ZeroDivisionError), Broker(java=QUICK_JAVA) as broker:  # noqa: PT012 - the failure is inside
        processes, folder = tree(broker.pids[0]), broker.folder
        assert len(processes) == 2
        assert folder.is_dir()
        _ = 1 / 0

    assert all(gone(process) for process in processes)
    assert not folder.exists()


def test_dies_with_a_killed_parent() -> None:
    """When the parent is killed by SIGKILL, its broker exits and its data is removed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_A_BROKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().decode().split()
        processes = tree(int(pid))
        parent.kill()

        assert all(gone(process) for process in processes)
        assert not Path(folder).exists()


def test_dies_with_an_interrupted_parent() -> None:
    """Ctrl-C in the parent ends its broker."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_A_BROKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().decode().split()
        processes = tree(int(pid))
        parent.send_signal(signal.SIGINT)
        parent.wait(PATIENCE)

        assert all(gone(process) for process in processes)
        assert not Path(folder).exists()


def test_given_folder_is_kept(tmp_path: Path) -> None:
    """Data in a folder that the caller names outlives the broker, and another broker serves it."""
    with Broker(folder=tmp_path, java=QUICK_JAVA) as broker:
        write(broker, broker.create_topic("kept"), b"one")
    with Broker(folder=tmp_path, java=QUICK_JAVA) as broker:
        assert [b"one"] == read(broker, "kept", 1)


def test_three_nodes_survive_the_loss_of_one() -> None:
    """Three nodes serve a replicated topic while one of them is down, and after its restart."""
    with Broker(nodes=3, properties=RATHER_STEADY, java=QUICK_JAVA) as broker:
        topic = broker.create_topic("replicated", config={"min.insync.replicas": "2"}, replication=3)
        broker.kill(2)
        write(broker, topic, b"with two")
        broker.start(2)

        assert [b"with two"] == read(broker, topic, 1)


def test_failed_start_shows_why() -> None:
    """If a server does not start, the error contains its message, and no process is left."""
    broker = Broker(properties={"process.roles": "teapot"})
    with pytest.raises(BrokerFailed, match="teapot"):
        broker.start()

    assert [] == broker.pids
    broker.close()


def test_fetch_is_idempotent(capfd: pytest.CaptureFixture[str]) -> None:
    """A second fetch prints nothing and returns the same folder."""
    folder = fetch_jars()
    capfd.readouterr()

    assert folder == fetch_jars()
    assert ("", "") == capfd.readouterr()
    assert list(folder.glob("kafka_2.13-4.3.0.jar"))


def test_failed_fetch_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a jar cannot be fetched, the error names it, and no incomplete folder takes the place of the bundle."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FetchFailed, match=r"no-such-module"):
        fetch_jars(Bundle("Nothing", "nothing-1", "1 jar", {"org.apache.kafka:no-such-module:1": "0" * 64}))

    assert not (tmp_path / "winnow" / "nothing-1").exists()


def test_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java, the error names the folder that was searched."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=str(tmp_path)):
        Broker().start()


def test_old_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If Java is too old, the error names its version."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="is Java 11"):
        Broker().start()
