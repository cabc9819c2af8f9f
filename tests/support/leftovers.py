"""What a test leaves running fails the test: processes, and clients of Kafka, whose threads go on looking for brokers."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.embedded import process as supervisor
from tests import independent
from tests.support.waiting import alive_after

GRACE_SECONDS = 30
OF_PYTHON = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
"""They live as long as the tests."""


def running() -> set[psutil.Process]:
    """Return the processes below this one that a test may have started."""
    return {each for each in psutil.Process().children(recursive=True) if not _is_of_python(each)}


def _is_of_python(process: psutil.Process) -> bool:
    return any(module in word for word in _command(process) for module in OF_PYTHON)


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def _is_a_server(process: psutil.Process) -> bool:
    """Return whether a process is supervised, or a supervisor: fixtures start servers for many tests, and tests again."""
    program = str(Path(supervisor.__file__))
    try:
        return any(program in _command(each) for each in (process, *process.parents()))
    except psutil.NoSuchProcess:
        return False


def left_of(processes: set[psutil.Process]) -> list[str]:
    """Wait for the end of processes; kill those that do not end, and return their commands."""
    left = alive_after(processes, GRACE_SECONDS)
    commands = [" ".join(_command(each)) for each in left]
    for each in left:
        each.kill()
    return commands


def clients() -> int:
    """Count the clients of Kafka in this process, but those of the tests' own view: librdkafka has a thread for each."""
    names = [_name(task) for task in Path("/proc/self/task").iterdir()]
    return names.count("rdk:main") - independent.connections()


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:  # it has ended
        return ""


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    before = running()
    yield
    assert [] == left_of({each for each in running() - before if not _is_a_server(each)})
    gc.collect()  # a service that has ended is garbage, but in cycles: its clients would go on


@pytest.fixture
def no_client_is_left() -> Iterator[None]:
    """Fail a test after which a client of Kafka goes on."""
    connected = clients()
    yield
    gc.collect()
    deadline = time.monotonic() + GRACE_SECONDS
    while clients() > connected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert clients() <= connected
