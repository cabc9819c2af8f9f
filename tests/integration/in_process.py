"""The whole service without Spark: the real driver on a real Kafka, with tasks in threads of this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from structlog.testing import capture_logs

from app import config as configuration
from app.driver.stop import Stop
from app.errors import SparkFailed
from app.executor import task
from app.executor.parse import make_parser
from app.kafka.clients import TaskClients
from app.model import Assignment, Receipt
from app.runtime import REAL, Runtime, Timings
from app.start import service
from tests.support.logs import of_event
from tests.support.waiting import PATIENCE, until

TASKS = 2
ALONE = Runtime(timings=Timings(sign_of_life=0.2))
"""For a service or a command while no other service works for the group: it looks for one only briefly."""


class ThreadRounds:
    """Runs rounds in threads."""

    slots = TASKS

    def __init__(self) -> None:
        self.assignments: list[list[Assignment]] = []
        """The tasks of each round."""
        self._threads = ThreadPoolExecutor(TASKS)

    def warm_up(self) -> None:
        pass

    def submit(self, assignments: Sequence[Assignment]) -> ThreadRound:
        self.assignments.append(list(assignments))
        return ThreadRound(self._threads, assignments)

    def stop(self) -> None:
        self._threads.shutdown()


class ThreadRound:
    """One round. After `cancel` its task continues as a zombie whose receipt is ignored: threads cannot be killed."""

    lost_tasks = done_tasks = 0
    starved = False

    def __init__(self, threads: ThreadPoolExecutor, assignments: Sequence[Assignment]) -> None:
        self._cancelled = False
        self._running = [threads.submit(_work, each) for each in assignments]

    def wait(self, seconds: float) -> bool:
        return not wait(self._running, seconds).not_done

    def cancel(self) -> None:
        self._cancelled = True

    def receipts(self) -> list[Receipt]:
        if self._cancelled:
            raise SparkFailed("the round was cancelled")
        return [receipt for each in self._running for receipt in each.result()]


def _work(assignment: Assignment) -> list[Receipt]:
    with TaskClients(assignment.config, ranges=assignment.ranges) as clients:
        return task.run(assignment, clients, make_parser(assignment.config), assignment.seconds)


def run(
    written: Mapping[str, Any], *, until_end: bool = True, stop: Stop | None = None, runtime: Runtime = ALONE
) -> tuple[int, ThreadRounds]:
    """Run a service with this configuration. Return its exit code and its rounds."""
    rounds = ThreadRounds()
    loaded = configuration.Config.model_validate(dict(written))
    code = service(loaded, lambda: rounds, stop or _Unsignalled(), runtime).run(until_end=until_end)
    return code, rounds


class _Unsignalled(Stop):
    """A stop that leaves signals to pytest."""

    def on_signals(self) -> None:
        pass


class Running:
    """
    A service in a thread, until it is stopped. A context manager.

    Args:
        written: its configuration.
        runtime: its clocks and its patience.
    """

    def __init__(self, written: Mapping[str, Any], runtime: Runtime = REAL) -> None:
        self.code: int | None = None
        self._stop = _Unsignalled()
        self._thread = threading.Thread(target=self._run, args=(written, runtime), daemon=True)

    def _run(self, written: Mapping[str, Any], runtime: Runtime) -> None:
        self.code = run(written, until_end=False, stop=self._stop, runtime=runtime)[0]

    def __enter__(self) -> Callable[[], int | None]:
        self._thread.start()
        return self.end

    def end(self) -> int | None:
        """Stop it as a signal does, and return its exit code."""
        self._stop.request("test")
        self._thread.join(PATIENCE)
        return self.code

    def __exit__(self, *_: object) -> None:
        self.end()


class Told:
    """The log of this process's services."""

    def __init__(self, entries: Sequence[MutableMapping[str, Any]]) -> None:
        self.entries = entries

    def wait_for(self, event: str, times: int = 1, **fields: object) -> MutableMapping[str, Any]:
        """Wait until an event with these fields has been logged this many times, and return the last one."""
        until(lambda: len(self.all(event, **fields)) >= times, f"{event!r} with {fields}")
        return self.all(event, **fields)[times - 1]

    def all(self, event: str, **fields: object) -> list[MutableMapping[str, Any]]:
        return [each for each in of_event(self.entries, event) if fields.items() <= each.items()]


@contextlib.contextmanager
def services(
    *configs: dict[str, Any], runtime: Runtime = REAL
) -> Iterator[tuple[Told, list[Callable[[], int | None]]]]:
    """Run services side by side. Return their log and a function for each that ends it and returns its exit code."""
    with capture_logs() as entries, contextlib.ExitStack() as stack:
        yield Told(entries), [stack.enter_context(Running(config, runtime)) for config in configs]
