"""Runs a task on a fake Kafka."""

from __future__ import annotations

from app.executor import task
from app.executor.parse import make_parser
from app.model import OffsetRange, Receipt
from parsers.contract import Parser
from tests.fakes import FakeClients, make_assignment


def run_task(
    clients: FakeClients, *ranges: OffsetRange, parser: Parser | None = None, seconds: float = 8
) -> list[Receipt]:
    """Run a task for some seconds of its clients' clock, by default with the configured parser."""
    task_config = clients.task_config
    assignment = make_assignment(task_config, *ranges)
    return task.run(assignment, clients, parser or make_parser(task_config), seconds, clients.clock.runtime)
