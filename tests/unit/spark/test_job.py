"""A round's view of its Spark job, with a fake Spark."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from app.errors import SparkFailed
from app.model import Assignment, Attempt, OffsetRange, Partition, Receipt
from app.spark import job
from app.spark.job import SparkRound, SparkRounds
from tests.fakes import make_assignment, make_task_config
from tests.support.waiting import PATIENCE


class Context:
    """A SparkContext with one job, which has one stage of three tasks."""

    def __init__(self, active: int, completed: int = 0) -> None:
        self.stage = SimpleNamespace(numTasks=3, numActiveTasks=active, numCompletedTasks=completed)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def statusTracker(self) -> Any:  # noqa: N802  # Spark's name
        return SimpleNamespace(
            getJobIdsForGroup=lambda _: [0],
            getJobInfo=lambda _: SimpleNamespace(stageIds=[0]),
            getStageInfo=lambda _: self.stage,
        )


class Hanging(Context):
    """A SparkContext whose job ends, killed or not, when a test says so."""

    def __init__(self, active: int) -> None:
        super().__init__(active)
        self.ended = Event()

    def parallelize(self, *_: object) -> Any:
        return SimpleNamespace(mapPartitions=lambda _: SimpleNamespace(collect=self._collect))

    def _collect(self) -> list[Receipt]:
        self.ended.wait()
        return []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a clock that a test moves."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(job, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def starved_after(seconds: float, context: Context, slots: int, clock: SimpleNamespace) -> bool:
    running = SparkRound(context, list, [], lambda: slots)  # type: ignore[arg-type]  # a fake context
    seen = [running.starved]
    clock.seconds += seconds
    seen.append(running.starved)
    return seen == [False, True]


def test_a_lost_task_that_finds_no_slot(clock: SimpleNamespace) -> None:
    """The round ends soon, because the executor is lost and the task's partitions are not read."""
    assert starved_after(2.1, Context(active=2), 2, clock)


def test_tasks_that_are_not_started_yet(clock: SimpleNamespace) -> None:
    """The round waits for a new executor on a busy machine; ending it would only add load."""
    assert not starved_after(10, Context(active=2), 3, clock)
    assert starved_after(16, Context(active=2), 3, clock)


def test_tasks_that_run_or_are_done(clock: SimpleNamespace) -> None:
    """A round in which every task has a slot or has ended is not starved."""
    assert not starved_after(60, Context(active=2, completed=1), 2, clock)


def test_short_waits_do_not_add_up(clock: SimpleNamespace) -> None:
    context = Context(active=2)
    running = SparkRound(context, list, [], lambda: 2)  # type: ignore[arg-type]  # a fake context

    for seconds, waits in ((0, True), (1.5, False), (1.5, True)):
        clock.seconds += seconds
        context.stage.numCompletedTasks = 0 if waits else 1
        assert not running.starved


def test_a_round_that_does_not_end_when_it_is_killed_has_not_reported() -> None:
    """Otherwise it would count as one whose tasks have reported nothing, and the next would get no more time."""
    context = Hanging(active=3)
    running = SparkRound(context, list, [], lambda: 3)  # type: ignore[arg-type]  # a fake context
    running.cancel()

    with pytest.raises(SparkFailed, match="not ended"):
        running.receipts()

    context.ended.set()
    assert running.wait(PATIENCE)
    assert [] == running.receipts()


def test_a_failure_without_words_is_named() -> None:
    """A JVM that ends may leave an EOFError that says nothing."""

    class Wordless(Hanging):
        def _collect(self) -> list[Receipt]:
            raise EOFError

    running = SparkRound(Wordless(active=3), list, [], lambda: 3)  # type: ignore[arg-type]  # a fake context
    assert running.wait(PATIENCE)

    with pytest.raises(SparkFailed, match="too often: EOFError"):
        running.receipts()


@pytest.mark.parametrize(
    ("context", "planned", "attempt"),
    [
        (SimpleNamespace(attemptNumber=lambda: 1), Attempt(7, 3), Attempt(7, 3, 1)),
        (None, Attempt(7, 3, 2), Attempt(7, 3, 2)),
    ],
    ids=["Spark's number", "without Spark, as tests fork tasks, the plan's"],
)
def test_a_worker_logs_whose_lines_they_are(
    context: object, planned: Attempt, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line of a task has its group, round and number, and that of the attempt."""
    told: dict[str, object] = {}
    seen: list[Attempt] = []

    def run(assignment: Assignment, *_: object) -> list[Receipt]:
        seen.append(assignment.attempt)
        return []

    monkeypatch.setattr("app.log.configure", lambda level, **context: told.update(context, level=level))
    monkeypatch.setattr(job, "TaskClients", lambda *_, **__: nullcontext())
    monkeypatch.setattr(job, "TaskContext", SimpleNamespace(get=lambda: context))
    monkeypatch.setattr("app.executor.task.run", run)
    assignment = make_assignment(make_task_config(), OffsetRange(Partition("raw", 0), 0, 0))

    assert [] == [*job.work([replace(assignment, attempt=planned)])]

    assert {"group": "g", "round": 7, "task": 3, "level": "info"} == told
    assert [attempt] == seen


@pytest.mark.parametrize("fails", [False, True])
def test_the_log_shows_where_a_parser_hangs_that_is_being_built(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """The driver sends an operator there. Once it is built, the task has a watchdog of its own."""
    done: list[str] = []

    def build(_: object) -> None:
        done.append("build")
        if fails:
            raise OSError("no table")

    def run(*_: object) -> list[Receipt]:
        done.append("run")
        return []

    timer = {f"{name}_traceback_later": partial(noted, done, name) for name in ("dump", "cancel_dump")}
    monkeypatch.setattr("app.watchdog.faulthandler", SimpleNamespace(**timer))
    monkeypatch.setattr(job, "TaskClients", lambda *_, **__: nullcontext())
    monkeypatch.setattr(job, "make_parser", build)
    monkeypatch.setattr("app.executor.task.run", run)

    with pytest.raises(OSError, match="no table") if fails else nullcontext():
        [*job.work([make_assignment(make_task_config(), OffsetRange(Partition("raw", 0), 0, 0))])]

    assert ["dump", "build", "cancel_dump", *([] if fails else ["run"])] == done


def noted(done: list[str], name: str, *_: object, **__: object) -> None:
    done.append(name)


class Executors:
    """A SparkContext whose executors have these numbers of cores."""

    def __init__(self, cores: list[int], per_task: int) -> None:
        self._cores = cores
        self._per_task = per_task
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: self))

    def executorList(self, active: bool) -> Any:  # noqa: N802  # Spark's name
        assert active
        return SimpleNamespace(
            size=lambda: len(self._cores),
            apply=lambda i: SimpleNamespace(totalCores=lambda: self._cores[i]),
        )

    def getConf(self) -> Any:  # noqa: N802  # Spark's name
        return {"spark.task.cpus": str(self._per_task)}


@pytest.mark.parametrize(
    ("cores", "per_task", "slots"), [([0, 2, 2], 1, 4), ([3, 3], 2, 2), ([5, 3], 2, 3), ([1, 1], 2, 1)]
)
def test_a_slot_lies_in_one_executor(cores: list[int], per_task: int, slots: int) -> None:
    """Leftover cores of two executors do not make a slot; a task planned for it would wait."""
    assert slots == SparkRounds(Executors(cores, per_task)).slots  # type: ignore[arg-type]  # a fake context


class Stoppable:
    """A SparkContext that records its properties when it is stopped."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: self))
        self.at_the_stop: dict[str, str] = {}

    def set(self, name: str, value: str) -> None:
        self._properties[name] = value

    def stop(self) -> None:
        self.at_the_stop = dict(self._properties)


def test_a_stop_deletes_no_pod() -> None:
    """Executors end by themselves after the stop; the driver lacks the right to delete all of them at once."""
    context = Stoppable()

    SparkRounds(context).stop()  # type: ignore[arg-type]  # a fake context

    assert {"spark.kubernetes.executor.deleteOnTermination": "false"} == context.at_the_stop
