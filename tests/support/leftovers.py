"""A test fails if it leaves something running: processes, threads, or Kafka clients, which keep looking for brokers."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from app.embedded import process as supervisor
from tests import independent
from tests.support.waiting import LOOK_SECONDS, PATIENCE, alive_after

OURS = "winnow"
"""How the names of the product's threads begin."""
OF_ZOOKEEPER = "(zk_loop)"
"""A client of ZooKeeper uses the global `random` in its thread, which hypothesis takes for a fault of whatever test runs."""
OF_TASKS = {"test_conformance", "test_flow_control", "test_refused_records", "test_task_offsets", "test_task_records"}
"""Modules about tasks: a client that they leave is a leak. Others have clients of their own, or lose brokers."""
OF_PYTHON = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
"""These live as long as the tests."""


def _is_of_python(process: psutil.Process) -> bool:
    return any(module in word for word in _command(process) for module in OF_PYTHON)


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def _is_a_server(process: psutil.Process) -> bool:
    """Return whether a process is supervised or a supervisor, as all servers of the fixtures are."""
    program = str(Path(supervisor.__file__))
    try:
        return any(program in _command(each) for each in (process, *process.parents()))
    except psutil.NoSuchProcess:
        return False


def _processes() -> set[psutil.Process]:
    return {each for each in psutil.Process().children(recursive=True) if not _is_of_python(each)}


def kafka_clients() -> set[str]:
    """Return the main thread of each Kafka client in this process."""
    return {task.name for task in Path("/proc/self/task").iterdir() if _name(task) == "rdk:main"}


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:  # it has ended
        return ""


class AlreadyRunning:
    """What was running before a test."""

    def __init__(self, *, clients_count: bool = True) -> None:
        self._clients_count = clients_count
        self._processes, self._threads = _processes(), set(threading.enumerate())
        self._clients, self._connections = kafka_clients(), independent.connections()

    def processes_of_test(self) -> list[psutil.Process]:
        """Return the remaining processes, without servers."""
        return [each for each in _processes() - self._processes if not _is_a_server(each)]

    def left_in_process(self) -> list[str]:
        """Return what remains in this process. A service that has ended may be garbage in reference cycles."""
        if self._threads_of_test() or self._clients_of_test():
            gc.collect()  # only then: after each test it would take a fifth of the time
        clients = self._clients_of_test() if self._clients_count else 0
        return self._threads_of_test() + ["a client of Kafka"] * clients

    def _clients_of_test(self) -> int:
        """Count its clients that run, without those that `independent` caches. Earlier ones may still be ending."""
        return max(0, len(kafka_clients() - self._clients) - (independent.connections() - self._connections))

    def _threads_of_test(self) -> list[str]:
        names = [each.name for each in set(threading.enumerate()) - self._threads]
        # Other libraries keep theirs.
        return [each for each in names if each.startswith(OURS) or OF_ZOOKEEPER in each]


def _existing() -> list[str]:
    """Return the clients that Python knows, and what refers to each; librdkafka may still be ending others."""
    kinds = (Producer, Consumer, AdminClient)
    found = [each for each in gc.get_objects() if isinstance(each, kinds)]
    return [f"{type(each).__name__} of {[type(of).__name__ for of in gc.get_referrers(each)]}" for each in found]


@pytest.fixture(autouse=True)
def _nothing_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    if "centre" in request.fixturenames:
        request.getfixturevalue("centre")  # it may start a cluster, whose client then counts as running before the test
    before, failed = AlreadyRunning(clients_count=request.path.stem in OF_TASKS), request.session.testsfailed
    yield
    deadline = time.monotonic() + PATIENCE
    alive = alive_after(before.processes_of_test())
    commands = [" ".join(_command(each)) for each in alive]
    for each in alive:
        each.kill()
    while (inside := before.left_in_process()) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    if request.session.testsfailed == failed:  # a failure's traceback keeps objects alive
        left = commands + inside
        assert not left, (left, _existing())
