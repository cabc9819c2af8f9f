"""
The service continues where Winnow 0.1.0 stopped: nothing is lost or duplicated, and the counts continue.

The output of 0.1.0 is in `tests/data`. If git has its commit, 0.1.0 itself runs as well.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from confluent_kafka import TopicCollection, TopicPartition

from app.embedded.broker import Cluster
from app.model import Partition, transactional_id
from tests import upgrade
from tests.conftest import Topics
from tests.independent import Feeder, _member, amiss, by_partition, client, produce, read
from tests.integration.service import Winnow, WinnowOnSpark
from tests.support.waiting import until
from tests.upgrade import FIRST_VERSION_RUNS, GROUP, PAGE, PARTITIONS, SOURCE, require_it_goes_on


def leave_what_is_recorded(bootstrap: str, group: str, source: str, sink: str, dead: str) -> None:
    """Write to Kafka what 0.1.0 left there. Its metadata gets the id of this topic."""
    left = upgrade.recorded()
    produce(bootstrap, sink, left.sink)
    produce(bootstrap, dead, left.dead)
    topic_id = client(bootstrap).describe_topics(TopicCollection([source]))[source].result(60).topic_id
    offsets = [
        TopicPartition(source, number, offset, re.sub(r"topic=\S+", f"topic={topic_id}", metadata))
        for number, (offset, metadata) in left.offsets.items()
    ]
    answers = _member(bootstrap, group).commit(offsets=offsets, asynchronous=False)
    assert all(at.error is None for at in answers or ())


def test_it_goes_on_after_the_first_version(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Every record has one outcome, whichever version produced it, and the stored counts include both versions."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead", PARTITIONS)
    produce(broker.bootstrap, source, upgrade.given())
    leave_what_is_recorded(broker.bootstrap, sink, source, sink, dead)
    require_it_goes_on(broker.bootstrap, tmp_path, source, sink, dead)


def test_the_fence_is_the_same() -> None:
    """The transactional ids are those of 0.1.0, so its late commits are fenced."""
    now = [transactional_id(GROUP, Partition(SOURCE, number)) for number in range(PARTITIONS)]

    assert now == upgrade.recorded().transactional_ids


@FIRST_VERSION_RUNS
def test_it_takes_over_from_a_first_version_that_still_runs(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Both run at once for a while, then 0.1.0 is killed at work: nothing is lost or duplicated."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead", PARTITIONS)
    config = upgrade.settings_of(broker.bootstrap, sink, source, sink, dead)
    old = upgrade.unpacked(tmp_path / "0.1.0")
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
