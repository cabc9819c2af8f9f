"""Runs a round as one Spark job: one task per assignment, receipts collected."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import InheritableThread, SparkContext, SparkStageInfo, TaskContext

from app import log
from app.errors import SparkFailed
from app.executor import task
from app.executor.parse import make_parser
from app.kafka.clients import TaskClients
from app.model import Assignment, Receipt
from app.spark import session
from app.spark.logs import has_own_log, job_name, json_lines, logged_lines
from app.watchdog import shown_if_slow

Work = Callable[[Iterable[Assignment]], Iterator[Receipt]]

# How long a task may wait for a slot before its round is ended: RETRY if all slots are taken, because an executor was
# lost; LAUNCH if one is free, because Spark counts a new executor long before it accepts tasks on a busy machine.
RETRY_SECONDS = 2.0
LAUNCH_SECONDS = 15.0
OCCUPIED_SECONDS = 1.0
DELETE_EXECUTORS = "spark.kubernetes.executor.deleteOnTermination"
ENDED = "Spark ended while Winnow was running; see its log"
RESTART = "restart Winnow; it resumes from the committed offsets"


def work(assignments: Iterable[Assignment]) -> Iterator[Receipt]:
    """Process one assignment of a round. Runs in a Python worker of an executor."""
    context = TaskContext.get()
    for planned in assignments:
        attempt = planned.attempt if context is None else planned.attempt._replace(number=context.attemptNumber())
        assignment, config = replace(planned, attempt=attempt), planned.config
        log.configure(config.log_level, group=config.group, round=attempt.round, task=attempt.task)
        with TaskClients(config, ranges=assignment.ranges, in_use=assignment.takes_over) as clients:
            with shown_if_slow():  # an own parser may hang in __init__, until the driver ends the round
                parser = make_parser(config)
            yield from task.run(assignment, clients, parser, seconds_left(assignment))


def seconds_left(assignment: Assignment) -> float:
    """
    Return how many seconds this attempt may work.

    A first attempt gets the whole round, whatever this machine's clock says. A retry goes by the clock, so that the
    other tasks need not wait for it; a wrong clock makes it shorter, or as long as a first attempt.
    """
    if assignment.attempt.number == 0:
        return assignment.seconds
    return min(max(assignment.deadline - time.time(), 0.0), assignment.seconds)


def _occupy(_number: int) -> None:
    """Occupy a slot until every other slot has got a task, and load what tasks need."""
    warm_up()
    time.sleep(OCCUPIED_SECONDS)


def warm_up() -> None:
    with contextlib.suppress(Exception):  # a broken parser is reported by the task that uses it
        import parsers.idc_access_log

        parsers.idc_access_log.IdcAccessLog()
    with contextlib.suppress(Exception):  # if it cannot be loaded, tasks use the plain backend and log the reason
        import app.kafka.bulk.consumer  # noqa: F401


class SparkRounds:
    """Runs rounds on a Spark context; `work` is what a Python worker does with its assignments, pickled by name."""

    def __init__(self, context: SparkContext, work: Work = work) -> None:
        self._context = context
        self._work = work

    @property
    def slots(self) -> int:
        with _spark_answers():
            store = self._context._jsc.sc().statusStore()  # noqa: SLF001  # pyspark has no public method for it
            executors = store.executorList(True)  # a Java method: only the active ones
            cores: list[int] = [executors.apply(i).totalCores() for i in range(executors.size())]
            per_task = int(self._context.getConf().get("spark.task.cpus", "1") or 1)
            return max(1, sum(each // per_task for each in cores))  # a task's cores belong to one executor

    def warm_up(self) -> None:
        """Start a Python worker in each slot; the first ones of an executor take seconds."""
        slots = self.slots
        with _spark_answers():
            self._context.parallelize(range(slots), slots).foreach(_occupy)

    def submit(self, assignments: Sequence[Assignment]) -> SparkRound:
        with _spark_answers():
            if self._context._jsc.sc().isStopped():  # noqa: SLF001
                raise SparkFailed(ENDED, RESTART)
        return SparkRound(self._context, self._work, assignments, lambda: self.slots)

    def stop(self) -> None:
        """
        Stop Spark.

        On Kubernetes, executors end when the driver does, and the driver owns their pods. Deleting the pods all at
        once, as Spark would, needs a right in the cluster that the driver needs for nothing else.
        """
        with contextlib.suppress(Py4JError, OSError):  # its JVM has already ended
            self._context._jsc.sc().conf().set(DELETE_EXECUTORS, "false")  # noqa: SLF001  # read when Spark stops
            self._context.stop()


def start_rounds(wanted: Mapping[str, str], group: str, *, submitted: bool) -> SparkRounds:
    """Start Spark, or join what spark-submit prepared. Raises SparkFailed."""
    if log.on_terminal():
        return SparkRounds(session.start(wanted, submitted=submitted))
    with contextlib.nullcontext() if has_own_log(wanted) else logged_lines() as stderr:
        return SparkRounds(session.start({**json_lines(group), **wanted}, submitted=submitted, stderr=stderr))


class SparkRound:
    """A round that runs as a Spark job."""

    def __init__(
        self, context: SparkContext, work: Work, assignments: Sequence[Assignment], slots: Callable[[], int]
    ) -> None:
        self._context = context
        self._work = work
        self._assignments = assignments
        self._number = max((assignment.attempt.round for assignment in assignments), default=0)
        self._group = f"winnow-round-{self._number}"
        self._slots = slots
        self._receipts: list[Receipt] = []
        self._failure: Exception | None = None
        self._waiting_since: float | None = None
        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        partitions = (each.partition for assignment in self._assignments for each in assignment.ranges)
        self._context.setJobGroup(self._group, job_name(self._number, partitions), interruptOnCancel=True)
        self._context.setLocalProperty("mdc.round", str(self._number))  # labels Spark's log lines about these tasks
        try:
            tasks = self._context.parallelize(self._assignments, len(self._assignments))
            self._receipts = tasks.mapPartitions(self._work).collect()
        except Exception as error:  # noqa: BLE001  # kept for the waiting thread
            self._failure = error

    def wait(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def lost_tasks(self) -> int:
        return sum(stage.numFailedTasks for stage in self._stages())

    @property
    def done_tasks(self) -> int:
        return sum(stage.numCompletedTasks for stage in self._stages())

    @property
    def starved(self) -> bool:
        """Whether a task has waited too long for a slot: its executor is gone, or never came."""
        waiting = [stage for stage in self._stages() if stage.numActiveTasks + stage.numCompletedTasks < stage.numTasks]
        if not waiting:
            self._waiting_since = None
            return False
        self._waiting_since = self._waiting_since or time.monotonic()
        taken = sum(stage.numActiveTasks for stage in waiting)
        patience = RETRY_SECONDS if taken >= self._slots() else LAUNCH_SECONDS
        return time.monotonic() - self._waiting_since > patience

    def _stages(self) -> Iterator[SparkStageInfo]:
        with _spark_answers():
            tracker = self._context.statusTracker()
            for number in tracker.getJobIdsForGroup(self._group):
                info = tracker.getJobInfo(number)
                for stage in info.stageIds if info else ():
                    if found := tracker.getStageInfo(stage):
                        yield found

    def cancel(self) -> None:
        with _spark_answers():
            self._context.cancelJobGroup(self._group)

    def receipts(self) -> list[Receipt]:
        if self._thread.is_alive():
            raise SparkFailed("the round was cancelled and has not ended yet")
        if self._failure is not None:
            trace = str(self._failure) or type(self._failure).__name__
            raise SparkFailed(f"a task failed too often: {_cause(trace)}") from self._failure
        return self._receipts


@contextlib.contextmanager
def _spark_answers() -> Iterator[None]:
    """Turn any sign that Spark has ended into the same error, whichever call notices first."""
    try:
        yield
    except (Py4JError, OSError) as error:
        raise SparkFailed(ENDED, RESTART) from error


def _cause(trace: str) -> str:
    """Return the most useful line of stacked Java and Python traces: Python's last error, or Java's first."""
    words = re.findall(r"^\s*((?!at |org\.apache|java|py4j|Caused)[\w.]+: \S.*)$", trace, re.MULTILINE)
    first = re.search(r"^: (\S+: .*)$", trace, re.MULTILINE)
    return words[-1] if words else first[1] if first else trace.splitlines()[0]
