"""`winnow pause` and `winnow resume` on a real Kafka, with a running and a starting service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli import main
from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, cleansed, committed, line, produce, read
from tests.integration.in_process import Running
from tests.integration.service import settings
from tests.support.configuration import file_of
from tests.support.waiting import PATIENCE, until


@pytest.mark.usefixtures("long_looks")
def test_a_pause_that_survives_a_restart(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """
    A paused service reads no record, keeps its place, and shows the pause in the lag. Afterwards each record arrives
    once. The commands end when the service has followed.

    The pause survives a recreated dead-letter topic, which removes all offsets stored with it.
    """
    source, sink, dead = topics("raw", 2), topics("clean"), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    file = file_of(config, tmp_path)

    def winnow(*arguments: str) -> dict[str, Any]:
        done = CliRunner().invoke(main, [*arguments, "-c", str(file), "--json"])
        assert 0 == done.exit_code, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def place() -> dict[tuple[str, int], int]:
        return committed(broker.bootstrap, sink, source)

    chosen = ["-c", str(file), "--json"]
    produce(broker.bootstrap, source, [Written(line(n), None, n % 2) for n in range(10)])
    with Running(config) as end:
        until(lambda: 10 == len(read(broker.bootstrap, sink)), "lines")
        paused = winnow("pause")
        # A reset is refused while a task works.
        assert 0 == CliRunner().invoke(main, ["offsets", "reset", "--to-current", *chosen]).exit_code
        produce(broker.bootstrap, source, [Written(line(n), None, n % 2) for n in range(10, 30)])
        before = place()
        assert 20 == winnow("lag")["lag"]
        assert 0 == end()
    assert paused["followed_seconds"] is not None
    admin = broker.admin()
    admin.delete_topics([dead])[dead].result(PATIENCE)
    until(lambda: dead not in admin.list_topics(timeout=PATIENCE).topics, "the end of the topic")
    broker.create_topic(dead)
    with Running(config):
        until(lambda: winnow("lag")["paused"] == paused["paused"], "the mark")
        assert paused | {"followed_seconds": None} == winnow("pause")
        assert before == place()
        assert 10 == len(read(broker.bootstrap, sink))
        resumed = winnow("resume")
        until(lambda: 30 == len(read(broker.bootstrap, sink)), "lines")

    assert resumed["paused"] is None
    assert resumed["followed_seconds"] is not None
    assert sorted(map(cleansed, range(30))) == sorted(each.value or b"" for each in read(broker.bootstrap, sink))
