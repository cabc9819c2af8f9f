"""
`winnow run` without Spark, which takes many seconds to start: each task runs in a forked process.

The command line, the driver, its signals and log, and the tasks are the product's own. Only `start_rounds` is replaced,
and optionally the driver's waiting times. A service is forked from `FORKS`. Before it has a thread or a client, it
forks a manager, which forks a worker for each task, like Spark's daemon.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from multiprocessing.reduction import DupFd

import psutil

from app import start
from app.cli import main
from app.errors import SparkFailed
from app.model import Assignment, Receipt
from app.runtime import REAL, Runtime, Timings
from app.spark import job
from app.spark.session import TASK_FAILURES
from tests.support.forks import FORKS

SLOTS = 2
WORKERS = multiprocessing.get_context("fork")


class ForkedService:
    """
    The service as a process, with the interface of `subprocess.Popen`.

    Args:
        arguments: those of the command line.
        environment: its environment.
        stderr: the file descriptor for its log; closed here.
        timings: the driver's waiting times; None for the product's own.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], stderr: int, timings: Timings | None
    ) -> None:
        process = FORKS.Process(target=_Service(arguments, environment, stderr, timings or REAL.timings))
        process.start()
        os.close(stderr)
        self._process, self.pid = process, process.pid or 0

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """Wait for its end and return the exit code."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, f"winnow still runs after {seconds} s"
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal if it is still running. It may end in this very moment."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


class _Service:
    """The work of such a process."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], stderr: int, timings: Timings) -> None:
        self._arguments, self._environment, self._stderr = list(arguments), dict(environment), stderr
        self._timings = timings

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_stderr": DupFd(self._stderr)}  # while it is sent to the process

    def __call__(self) -> None:
        os.setsid()
        with os.fdopen(self._stderr.detach(), "w") as stderr:  # type: ignore[attr-defined]  # a DupFd by now
            os.dup2(stderr.fileno(), sys.stderr.fileno())
        os.environ.clear()
        os.environ.update(self._environment)
        sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        rounds = ForkedRounds()
        job.start_rounds = lambda *_, **__: rounds  # type: ignore[assignment]
        start.service = partial(start.service, runtime=Runtime(timings=self._timings))
        main(self._arguments)


class ForkedRounds:
    """Runs the tasks of rounds in processes."""

    slots = SLOTS

    def __init__(self) -> None:
        """Fork the manager of the workers. No thread or client may exist yet."""
        self.manager, theirs = multiprocessing.Pipe()
        if os.fork() == 0:
            self.manager.close()
            with contextlib.suppress(BrokenPipeError):
                _manage(theirs)
            os._exit(0)
        theirs.close()
        self.numbers = itertools.count()

    def warm_up(self) -> None:
        pass

    def submit(self, assignments: Sequence[Assignment]) -> ForkedRound:
        return ForkedRound(self, assignments)

    def stop(self) -> None:
        self.manager.close()


class ForkedRound:
    """One round. Like Spark, it restarts a task whose worker has died, a few times."""

    starved = False

    def __init__(self, rounds: ForkedRounds, assignments: Sequence[Assignment]) -> None:
        self.lost_tasks = self.done_tasks = 0
        self._rounds = rounds
        self._running: dict[int, Assignment] = {}
        self._receipts: list[Receipt] = []
        self._failure = ""
        for each in assignments:
            self._start(each)

    def _start(self, assignment: Assignment) -> None:
        number = next(self._rounds.numbers)
        self._running[number] = assignment
        self._rounds.manager.send((number, assignment))

    def wait(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._running and self._rounds.manager.poll(max(0.0, deadline - time.monotonic())):
            number, receipts = self._rounds.manager.recv()
            if (assignment := self._running.pop(number, None)) is None:
                continue  # of a cancelled round
            if receipts is None:
                self._lost(assignment)
            else:
                self.done_tasks += 1
                self._receipts += receipts
        return not self._running

    def _lost(self, assignment: Assignment) -> None:
        self.lost_tasks += 1
        attempt = assignment.attempt._replace(number=assignment.attempt.number + 1)
        if attempt.number < TASK_FAILURES:
            left = max(0.0, assignment.deadline - time.time())
            self._start(replace(assignment, attempt=attempt, seconds=min(left, assignment.seconds)))
        else:
            self._end("a task failed too often")

    def cancel(self) -> None:
        self._end("the round was cancelled")

    def _end(self, failure: str) -> None:
        self._failure = failure
        self._running.clear()
        self._rounds.manager.send(None)

    def receipts(self) -> list[Receipt]:
        if self._failure:
            raise SparkFailed(self._failure)
        return self._receipts


def _manage(driver: Connection) -> None:
    """Fork a worker for each assignment, and send its report or its death to the driver. End with the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes of the service
    workers: dict[Connection, tuple[int, ForkProcess]] = {}
    try:
        while True:
            for ready in wait([driver, *workers]):
                if ready is not driver:
                    number, worker = workers.pop(ready)  # type: ignore[call-overload]  # only connections are waited for
                    driver.send((number, _report(ready)))  # type: ignore[arg-type]
                    worker.join()
                elif (request := driver.recv()) is None:
                    _kill(workers)
                else:
                    number, assignment = request
                    report, reports = WORKERS.Pipe(duplex=False)
                    worker = WORKERS.Process(target=_work, args=(reports, assignment))
                    worker.start()
                    reports.close()
                    workers[report] = number, worker
    except EOFError:
        _kill(workers)


def _report(worker: Connection) -> list[Receipt] | None:
    """Return a worker's report, or None if it has died."""
    with worker:
        try:
            receipts: list[Receipt] = worker.recv()
        except EOFError:
            return None
        return receipts


def _kill(workers: dict[Connection, tuple[int, ForkProcess]]) -> None:
    """Kill workers and their child processes."""
    for _, worker in workers.values():
        for process in psutil.Process(worker.pid).children(recursive=True) if worker.is_alive() else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        worker.kill()


def _work(reports: Connection, assignment: Assignment) -> None:
    with reports:
        reports.send(list(job.work([assignment])))
    os._exit(0)  # Python would wait for the threads of hanging calls
