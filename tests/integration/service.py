"""`winnow run` as a process: its log as events, its signals, its exit code and its child processes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import psutil

from tests.support.logs import of_event
from tests.support.spark import jvms, quick_spark
from tests.support.waiting import PATIENCE, alive_after, end, freeze, until

if TYPE_CHECKING:
    from app.runtime import Timings
    from tests.support.forked import ForkedService

Event = dict[str, Any]
Process: TypeAlias = "subprocess.Popen[bytes] | ForkedService"
DAEMON = re.compile(r"-m (app\.spark|pyspark)\.daemon")
QUICK_START = quick_spark()


def settings(bootstrap: str, *, group: str, sources: list[str], sink: str, dead: str, **more: object) -> Event:
    """Write a configuration. `more` are further keys, with `_` for dots."""
    return {
        "group.id": group,
        "source": {"topics": sources},
        "sink": {"topic": sink},
        "dead.letters": {"topic": dead},
        "kafka": {"bootstrap.servers": bootstrap},
        "spark": {"spark.master": "local[2]", "spark.ui.enabled": False, "spark.driver.memory": "512m"},
        "http": {"port": 0},
        "round.interval": "1s",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


class Winnow:
    """
    A run of the service, by default with rounds in forked processes. A context manager that leaves no process behind.

    Args:
        config: the content of the configuration file.
        folder: the folder for the file.
        arguments: further arguments of `winnow run`.
        environment: further environment variables.
        timings: the driver's waiting times, unless it runs on Spark.
    """

    on_spark: ClassVar[bool] = False

    def __init__(
        self,
        config: Mapping[str, Any],
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        timings: Timings | None = None,
    ) -> None:
        """Write the configuration without starting."""
        file = folder / f"winnow-{time.monotonic_ns()}.yaml"
        file.write_text(json.dumps(config))  # JSON is YAML
        self._arguments = ["run", "-c", str(file), *arguments]
        self._environment = dict(environment or {})
        self._timings = timings
        self._lock = threading.Lock()
        self._tree: list[psutil.Process] = []
        self.events: list[Event] = []
        self.noise: list[str] = []
        """Lines other than our events, mostly the JVM's."""

    def __enter__(self) -> Self:
        """Start."""
        log, theirs = os.pipe()
        self._log = os.fdopen(log)
        self._process = self._start(theirs)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        return self

    def _start(self, stderr: int) -> Process:
        """Start the process, and close its stderr on our side."""
        if not self.on_spark:
            # Not at the top: code that starts Spark also works with other checkouts of the product.
            from tests.support.forked import ForkedService

            return ForkedService(self._arguments, os.environ | self._environment, stderr, self._timings)
        environment = os.environ | QUICK_START | self._environment
        try:
            return subprocess.Popen(self._command, env=environment, stderr=stderr, start_new_session=True)
        finally:
            os.close(stderr)

    @property
    def _command(self) -> list[str]:
        return [sys.executable, "-m", "app.cli", *self._arguments]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Kill the service and its child processes. If a test failed, print the log."""
        self._remember_tree()
        with contextlib.suppress(ProcessLookupError):  # all have ended, or it has no group yet
            os.killpg(self._process.pid, signal.SIGKILL)  # also a worker that is forked just now: it holds the log open
        self._process.kill()
        self._process.wait()
        end(self._tree)
        self._listener.join(PATIENCE)
        self._log.close()
        if kind is not None:
            print("the log of winnow:", *self.events, *self.noise[-30:], sep="\n  ")  # pytest shows it

    def _listen(self) -> None:
        for line in self._log:
            with self._lock:
                try:
                    self.events.append(json.loads(line))
                except ValueError:
                    self.noise.append(line.rstrip())

    def logged(self, event: str) -> list[Event]:
        """Return the events of this name that have been logged so far."""
        with self._lock:
            return of_event(self.events, event)

    def wait_for(self, event: str, times: int = 1) -> Event:
        """Wait until the event has been logged this many times, and return the last one."""

        def found() -> list[Event]:
            ended = self._process.poll()
            if ended is not None:
                self._listener.join()
            found = self.logged(event)[times - 1 :]
            assert found or ended is None, f"it ended ({ended}) without logging {event!r}"
            return found

        return until(found, f"{event!r} in the log")[0]

    @property
    def pid(self) -> int:
        """The id of its process."""
        return self._process.pid

    def said(self) -> str:
        """Return the one line that it has printed for a person."""
        (line,) = [line for line in self.noise if line.startswith("winnow: ")]
        return line

    def code(self) -> int:
        """Wait for the end of the service, and return the exit code."""
        self._remember_tree()
        code = self._process.wait(PATIENCE)
        self._listener.join(PATIENCE)
        return code

    def send(self, number: int) -> None:
        """Send a signal to the process, as Kubernetes sends it."""
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """
        Send a signal, wait for the end, and return the exit code.

        SIGTERM goes to the process, as from Kubernetes. SIGINT goes to the whole group, as from a terminal's Ctrl-C.
        """
        self._remember_tree()
        if number == signal.SIGINT:
            os.killpg(self._process.pid, number)
        else:
            self.send(number)
        return self.code()

    def leftovers(self) -> list[psutil.Process]:
        """Return the processes that it started and that are still alive. Ask within the block: its end kills them."""
        return alive_after(self._tree)

    def _remember_tree(self) -> None:
        if self._process.poll() is not None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            self._tree = psutil.Process(self._process.pid).children(recursive=True)

    @property
    def workers(self) -> list[psutil.Process]:
        """The Python workers that run a task."""
        if self.on_spark:
            return list(working(psutil.Process(self._process.pid)))
        return list(forked_workers(psutil.Process(self._process.pid)))


class WinnowOnSpark(Winnow):
    """`winnow run` as a user starts it."""

    on_spark = True

    @property
    def java(self) -> list[psutil.Process]:
        """The JVMs that it started."""
        below = psutil.Process(self._process.pid).children(recursive=True)
        return list(jvms(below))


def refusal(config: Event, folder: Path) -> str:
    """Run the service until it exits with 3, and return the one line that it prints."""
    with Winnow(config, folder) as service:
        assert 3 == service.code()
    return service.said()


def working(root: psutil.Process) -> Iterator[psutil.Process]:
    """Find the Python workers below a process that run a task: they have connections to Kafka; idle ones do not."""
    for process in _children(root, recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if _is_daemon(process) and not _is_daemon(process.parent()):
                yield from _with_task(_children(process))


def forked_workers(root: psutil.Process) -> Iterator[psutil.Process]:
    """Find the workers of a service without Spark that run a task."""
    for manager in _children(root):
        yield from _with_task(_children(manager))


def _children(process: psutil.Process, *, recursive: bool = False) -> list[psutil.Process]:
    """Return the processes below one that may end meanwhile."""
    try:
        return list(process.children(recursive))
    except psutil.NoSuchProcess:
        return []


def _with_task(workers: Iterable[psutil.Process]) -> Iterator[psutil.Process]:
    return (worker for worker in workers if _connections(worker) > 1)


def _is_daemon(process: psutil.Process | None) -> bool:
    """Return whether a process is pyspark's daemon, or a worker that it forked."""
    return process is not None and bool(DAEMON.search(" ".join(process.cmdline())))


def _connections(process: psutil.Process) -> int:
    """Count the connections of a process. A worker has one to its JVM; the others belong to Kafka clients."""
    try:
        return sum(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections("tcp"))
    except psutil.NoSuchProcess:
        return 0


def kill_a_worker(service: Winnow, dice: random.Random) -> psutil.Process:
    """Kill a worker that runs a task, wait for its end, and return it."""

    def victim() -> psutil.Process | None:
        workers = service.workers
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended by itself
            for worker in dice.sample(workers, len(workers)):
                freeze(worker)
                if _connections(worker) > 1:  # its task has not ended between our look and the freeze
                    worker.kill()
                    return worker
                worker.send_signal(signal.SIGCONT)
        return None

    killed = until(victim, "a worker that runs a task")
    assert killed is not None
    alive_after([killed])
    return killed
