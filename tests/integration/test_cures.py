"""The command that an error prints to set offsets unblocks the partition when an operator types it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from structlog.testing import capture_logs

from app.cli import main
from app.embedded.broker import Cluster
from app.errors import ForeignSink
from tests import independent
from tests.conftest import Topics
from tests.independent import Written, cleansed, commit, line, produce, read
from tests.integration.in_process import run
from tests.integration.service import settings
from tests.support.configuration import file_of
from tests.support.logs import of_event
from tests.support.waiting import PATIENCE

LINES, RUBBISH = 20, 10


class HalfwayGroup(NamedTuple):
    """A group that has cleansed ten of the twenty lines of its source."""

    broker: Cluster
    source: str
    config: dict[str, Any]

    def why(self) -> str:
        """Run the service; return what it says about the partition that it blocks."""
        with capture_logs() as logged:
            assert 1 == run(self.config)[0]
        return str(of_event(logged, "partition_blocked")[-1]["error"])


def deleted_unread(group: HalfwayGroup) -> str:
    gone = [TopicPartition(group.source, 0, 15)]
    for deleted in independent.client(group.broker.bootstrap).delete_records(gone).values():
        deleted.result(PATIENCE)
    return group.why()


def beyond_the_end(group: HalfwayGroup) -> str:
    commit(group.broker.bootstrap, group.config["group.id"], {(group.source, 0): LINES + 5})
    return group.why()


def no_offset(group: HalfwayGroup) -> str:
    group.config["group.id"] += ".new"
    group.config["starting.offsets"] = "error"
    return group.why()


def too_many_dead_letters(group: HalfwayGroup) -> str:
    assert 0 == run(group.config)[0]
    produce(group.broker.bootstrap, group.source, [Written(b"rubbish")] * RUBBISH)
    group.config["dead.letters"]["breaker"] = {"ratio": 0.1, "minimum": 5}
    return group.why()


def another_sink(group: HalfwayGroup) -> str:
    group.config["sink"]["topic"] = group.broker.create_topic(f"{group.source}.other")
    with pytest.raises(ForeignSink) as refused:
        run(group.config)
    return str(refused.value)


@pytest.mark.usefixtures("brief_looks")
@pytest.mark.parametrize(
    ("trouble", "lines"),
    [
        (deleted_unread, [*range(10), *range(15, LINES)]),
        (beyond_the_end, [*range(10), *range(LINES)]),
        (no_offset, [*range(10), *range(LINES)]),
        (too_many_dead_letters, [*range(LINES)]),
        (another_sink, [*range(10, LINES)]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_who_does_as_told_goes_on(
    broker: Cluster, topics: Topics, tmp_path: Path, trouble: Callable[[HalfwayGroup], str], lines: list[int]
) -> None:
    """After the command, the service works to the end of the partition; the sink has the lines that it chose."""
    source, sink = topics("raw"), topics("clean")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=topics("dead"))
    group = HalfwayGroup(broker, source, config)
    produce(broker.bootstrap, source, [Written(line(n)) for n in range(10)])
    assert 0 == run(config)[0]
    produce(broker.bootstrap, source, [Written(line(n)) for n in range(10, LINES)])

    told = trouble(group)
    (command,) = set(re.findall(r"winnow (offsets reset -c winnow\.yaml.*? --to-[a-z]+(?: OFFSET)?)", told))
    file = file_of(group.config, tmp_path)
    typed = command.replace("winnow.yaml", str(file)).replace("OFFSET", str(LINES + RUBBISH))
    done = CliRunner().invoke(main, shlex.split(typed))

    assert 0 == done.exit_code, done.output
    assert 0 == run(group.config)[0]
    assert [cleansed(n) for n in lines] == [each.value for each in read(broker.bootstrap, config["sink"]["topic"])]
