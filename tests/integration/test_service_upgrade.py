"""
The service continues where an earlier release stopped: nothing is lost or duplicated, and the counts continue.

The output of each release is in `tests/data`. If git has the commit of 0.1.0, it runs as well.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection, TopicPartition

from app.embedded.broker import Cluster
from app.model import Partition, transactional_id
from tests import upgrade
from tests.conftest import Topics
from tests.independent import Feeder, _member, _retried, amiss, by_partition, client, produce, read
from tests.integration.service import Winnow, WinnowOnSpark
from tests.support.waiting import PATIENCE, until
from tests.upgrade import FIRST, PAGE, PARTITIONS, RELEASES, SOURCE, Release, Stage, require_it_goes_on


def leave_what_is_recorded(release: Release, stage: Stage) -> None:
    """Write to Kafka what a release left there. Its metadata get the id of this topic, and the name of this sink."""
    bootstrap, group, source, sink, dead = stage
    left = upgrade.recorded(release)
    produce(bootstrap, sink, left.sink)
    produce(bootstrap, dead, left.dead)
    topic_id = client(bootstrap).describe_topics(TopicCollection([source]))[source].result(PATIENCE).topic_id
    offsets = [
        TopicPartition(source, number, offset, re.sub(r"sink=\S+", f"sink={sink}", of_this_topic))
        for number, (offset, metadata) in left.offsets.items()
        if (of_this_topic := re.sub(r"topic=\S+", f"topic={topic_id}", metadata))
    ]
    answers = _retried(lambda: _member(bootstrap, group).commit(offsets=offsets, asynchronous=False))
    assert all(at.error is None for at in answers or ())


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_it_goes_on_after_an_earlier_release(broker: Cluster, topics: Topics, tmp_path: Path, release: Release) -> None:
    """Every record has one outcome, whichever version produced it, and the stored counts include both versions."""
    stage = upgrade.staged(broker.bootstrap, topics)
    produce(broker.bootstrap, stage.source, upgrade.given())
    leave_what_is_recorded(release, stage)
    require_it_goes_on(release, stage, tmp_path)


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_the_fence_is_the_same(release: Release) -> None:
    """The transactional ids are those of a release, so its late commits are fenced."""
    now = [transactional_id(release.group, Partition(SOURCE, number)) for number in range(PARTITIONS)]

    assert now == upgrade.recorded(release).transactional_ids


@FIRST.runs
def test_it_takes_over_from_a_first_version_that_still_runs(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Both run at once for a while, then 0.1.0 is killed at work: nothing is lost or duplicated."""
    stage = upgrade.staged(broker.bootstrap, topics)
    source, sink = stage.source, stage.sink
    config = upgrade.settings_of(FIRST, stage)
    old = upgrade.unpacked(FIRST, tmp_path / FIRST.version)
    with Feeder(broker.bootstrap, source, PARTITIONS, 200) as feeder, contextlib.ExitStack() as runs:
        first = contextlib.ExitStack()
        runs.enter_context(first).enter_context(WinnowOnSpark(config, tmp_path, environment=old))
        until(lambda: len(by_partition(read(broker.bootstrap, sink))) == PARTITIONS, "a flow")
        current = runs.enter_context(Winnow(config | PAGE, tmp_path))
        current.wait_for("progress")
        first.close()
        feeder.stop()
        until(lambda: len(read(broker.bootstrap, sink)) >= feeder.written.total(), "the end")

    assert {} == amiss(feeder.written, read(broker.bootstrap, sink))
