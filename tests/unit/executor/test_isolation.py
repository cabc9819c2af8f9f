"""When a task runs its parser in a separate process, and what happens to that process."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace
from typing import Any

import psutil
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from app.errors import ParserLost
from app.executor import task
from app.executor.isolation import DEATHS, isolated, parsing
from app.executor.parse import make_parser
from app.model import Assignment, Attempt, OffsetRange, Partition
from app.watchdog import Watchdog
from parsers.contract import Parsed
from parsers.testing import batch
from tests.fakes import FakeClients, FakeClock, FakeKafka, SourceRecord, make_assignment, make_task_config
from tests.fakes.parsers import NotIsolated
from tests.independent import cleansed, line
from tests.support.waiting import PATIENCE

A, B = Partition("raw", 0), Partition("raw", 3)
CONFIG = make_task_config()


def assignment(attempt: int = 0, *, isolate: bool = False) -> Assignment:
    ranges = [OffsetRange(each, None, 0) for each in (A, B)]
    made = make_assignment(CONFIG, *ranges, seconds=8)
    return replace(made, attempt=Attempt(1, 0, attempt), isolate=isolate)


def children() -> set[psutil.Process]:
    return set(psutil.Process().children())


@pytest.mark.parametrize(
    ("attempt", "isolate", "apart"), [(0, False, False), (1, False, False), (DEATHS, False, True), (0, True, True)]
)
def test_when_it_runs_apart(attempt: int, isolate: bool, apart: bool) -> None:
    """After two deaths of a task, or if the driver says so. The log mentions it."""
    before = children()
    planned = assignment(attempt, isolate=isolate)
    with capture_logs() as logs, Watchdog() as watchdog, parsing(make_parser(CONFIG), planned, watchdog) as parse_all:
        assert apart == bool(children() - before)
        parsed = parse_all(batch([line(n) if n != 3 else b"rubbish" for n in range(700)]))

    assert not children() - before
    assert [3] == parsed.reject_rows.tolist()
    assert 699 == len(parsed.rows)
    assert int(apart) == len(logs)


def test_a_task_cleanses_the_same() -> None:
    """The results of a task do not depend on where its parser runs."""
    kafka = FakeKafka({A: [SourceRecord(line(n)) for n in range(9)], B: [SourceRecord(b"bad"), SourceRecord(line(1))]})
    clock = FakeClock()

    receipts = task.run(
        assignment(isolate=True), FakeClients(kafka, CONFIG, clock), make_parser(CONFIG), 8, runtime=clock.runtime
    )

    assert [cleansed(n) for n in range(9)] == kafka.sink[A]
    assert [cleansed(1)] == kafka.sink[B]
    assert [b"bad"] == [each.value for each in kafka.dead[B]]
    assert all(each.balances for each in receipts)


def test_the_rest_of_a_chunk_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """If only a prefix of a chunk was parsed, the rest is read again: none is lost, doubled or out of order."""
    kafka = FakeKafka({A: [SourceRecord(line(n)) for n in range(9)], B: [SourceRecord(line(n)) for n in range(20, 25)]})
    clock = FakeClock()

    class Some(NotIsolated):
        """Parses at most two records at once."""

        def parse(self, values: pa.BinaryArray) -> Parsed:
            return super().parse(values[:2])

    monkeypatch.setattr("app.executor.isolation.isolated", Some)

    receipts = task.run(
        assignment(isolate=True), FakeClients(kafka, CONFIG, clock), make_parser(CONFIG), 8, runtime=clock.runtime
    )

    assert [cleansed(n) for n in range(9)] == kafka.sink[A]
    assert [cleansed(n) for n in range(20, 25)] == kafka.sink[B]
    assert [9, 5] == [each.records for each in receipts]


def test_a_process_that_starts_slowly_leaves_time_for_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first chunk has one record. On a busy machine a short round would cleanse no more."""
    kafka, clock = FakeKafka({A: [SourceRecord(line(n)) for n in range(9)], B: []}), FakeClock()

    class Slow(NotIsolated):
        starts = True

        def parse(self, values: pa.BinaryArray) -> Parsed:
            clock.now += 20 if self.starts else 0
            self.starts = False
            return super().parse(values[:1])

    monkeypatch.setattr("app.executor.isolation.isolated", Slow)

    task.run(assignment(isolate=True), FakeClients(kafka, CONFIG, clock), make_parser(CONFIG), 8, runtime=clock.runtime)

    assert [cleansed(n) for n in range(9)] == kafka.sink[A]


def test_a_process_that_dies_fails_the_task() -> None:
    """
    Spark then retries it. A task that continued would lose the process's records.

    A command says it in a line, and does not exit with 1, which stands for findings.
    """
    before = children()
    with Watchdog() as watchdog, isolated(CONFIG, watchdog.feed) as parse_apart:
        (process,) = children() - before
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(ParserLost, match="the parser process exited: see its stderr") as lost:
            parse_apart(batch([line(n) for n in range(10)]))
    assert 3 == lost.value.exit_code


def test_a_process_that_does_not_start_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does one that dies before it has the configuration, for want of memory perhaps."""

    class Ended(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.wait(PATIENCE)

    monkeypatch.setattr(subprocess, "Popen", Ended)
    monkeypatch.setattr("app.executor.isolation.PROGRAM", "")

    with isolated(CONFIG) as parse_apart, pytest.raises(ParserLost, match="the parser process exited"):
        parse_apart(batch([line(1)]))


def test_ctrl_c_does_not_end_the_process() -> None:
    """A terminal sends it to every process of a command. Only the command says that it was interrupted."""
    before = children()
    with isolated(CONFIG) as parse_apart:
        (process,) = children() - before
        parse_apart(batch([]))
        os.kill(process.pid, signal.SIGINT)
        assert 1 == len(parse_apart(batch([line(1)])).rows)
