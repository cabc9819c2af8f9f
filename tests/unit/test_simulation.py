"""With replaceable clocks and threads, the driver can be simulated for hours and a task without threads."""

from __future__ import annotations

import threading

import pytest
from structlog.testing import capture_logs

from app.driver.service import Service
from app.driver.tracker import StatusTracker
from app.executor import task
from app.executor.parse import make_parser
from app.model import OffsetRange, Partition
from app.runtime import Runtime
from app.status import log
from tests.fakes import (
    FakeClients,
    FakeClock,
    FakeKafka,
    FakeTransaction,
    SourceRecord,
    make_assignment,
    make_task_config,
)
from tests.fakes.driver import DriverKafka, SimulatedRounds, config
from tests.fakes.simulation import Inline, SimulatedStop, SimulatedTime
from tests.independent import cleansed, line
from tests.simulation.arms import ARMS
from tests.support.logs import of_event

AFTERNOON = 4 * 3600.0


def test_an_afternoon_of_the_service_takes_no_time() -> None:
    """Rounds of ten minutes follow one another, with every wait, on the simulated clock."""
    kafka, time = DriverKafka(p0=(0, 1_000), p1=(0, 500)), SimulatedTime()
    rounds, stop = SimulatedRounds(kafka, time), SimulatedStop(time, AFTERNOON)
    tracker = StatusTracker("g", [log.write], time.runtime)

    with capture_logs() as logs:
        service = Service(config(), kafka.clients, lambda: rounds, stop=stop, tracker=tracker, runtime=time.runtime)
        assert 0 == service.run(until_end=False)

    assert 23 <= len(rounds.rounds) <= 24
    assert AFTERNOON <= time.now < AFTERNOON + 10
    assert 1_500 == tracker.snapshot.totals.records
    assert [{"event": "stopped", "cause": "the simulation ends"}] == [
        {"event": entry["event"], "cause": entry["cause"]} for entry in of_event(logs, "stopped")
    ]


def test_a_task_needs_no_thread() -> None:
    """With an executor that runs each call at once, a task does everything in one thread, in order."""
    partitions = [Partition("raw", number) for number in range(50)]
    kafka = FakeKafka({each: [SourceRecord(line(each.number))] for each in partitions})
    task_config, clock = make_task_config(), FakeClock()
    before = threading.active_count()
    seen: list[int] = []

    def watched(clients: FakeClients, partition: Partition) -> FakeTransaction:
        seen.append(threading.active_count())
        return FakeTransaction(clients, partition)

    clients = FakeClients(kafka, task_config, clock, writers=watched)

    receipts = task.run(
        make_assignment(task_config, *(OffsetRange(each, None, 0) for each in partitions)),
        clients,
        make_parser(task_config),
        seconds=5,
        runtime=Runtime(clock, clock, Inline),
    )

    assert {before} == set(seen)
    assert {each: [cleansed(each.number)] for each in partitions} == kafka.sink
    assert 50 == sum(receipt.records for receipt in receipts)


@pytest.mark.parametrize("arm", ARMS)
def test_what_a_control_arm_replaces_exists(arm: str) -> None:
    """Names in strings escape a renaming; whether an arm is found takes minutes (tests/schedules)."""
    with ARMS[arm]():
        pass
