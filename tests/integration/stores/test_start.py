"""
Where the service starts with each offset store: the first time, again, with new partitions, and outside the range.

The driver, its tasks, Kafka and the stores' servers are real. Spark is left out because it plays no part here.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from structlog.testing import capture_logs

from app.cli import main
from app.embedded.broker import Cluster
from tests import independent
from tests.conftest import Topics
from tests.integration.stores.stage import STORES, StoreStage, lines
from tests.support.configuration import file_of
from tests.support.logs import of_event

REMEMBERING = pytest.mark.parametrize("store", STORES, indirect=True)


@REMEMBERING
def test_the_three_starts(broker: Cluster, topics: Topics, store: dict[str, Any]) -> None:
    """A first start follows the policy, a later one continues, and an added partition starts at its beginning."""
    stage = StoreStage(broker, topics, store)
    stage.write(0, 0, 5)
    stage.write(1, 0, 3)

    assert 0 == stage.run()
    assert {0: 5, 1: 3} == stage.remembered()

    stage.write(0, 5, 7)
    assert 0 == stage.run()
    assert {0: 7, 1: 3} == stage.remembered()

    independent.grow(broker.bootstrap, stage.source, 3)
    stage.write(2, 0, 4)
    assert 0 == stage.run()

    assert {0: 7, 1: 3, 2: 4} == stage.remembered()
    expected = {0: lines(0, *range(7)), 1: lines(1, *range(3)), 2: lines(2, *range(4))}
    assert expected == stage.cleansed()


@REMEMBERING
def test_an_offset_outside_the_range(broker: Cluster, topics: Topics, store: dict[str, Any]) -> None:
    """Records that were deleted unread block their partition or are skipped, as out.of.range configures."""
    stage = StoreStage(broker, topics, store)
    stage.write(0, 0, 5)
    assert 0 == stage.run()
    stage.write(0, 5, 20)
    stage.write(1, 0, 2)
    for deleted in independent.client(broker.bootstrap).delete_records([TopicPartition(stage.source, 0, 15)]).values():
        deleted.result(60)

    assert 1 == stage.run()
    assert {0: 5, 1: 2} == stage.remembered()

    stage.config["out.of.range"] = "earliest"
    assert 0 == stage.run()

    assert {0: 20, 1: 2} == stage.remembered()
    assert lines(0, *range(5), *range(15, 20)) == stage.cleansed()[0]


@pytest.mark.parametrize("store", ["redis", "files"], indirect=True)
def test_a_new_store_does_not_start_over(
    broker: Cluster, topics: Topics, store: dict[str, Any], tmp_path: Path, brief_looks: None
) -> None:
    """After a change of `offsets.store`, partitions wait until the offsets are carried over as the cure says."""
    stage = StoreStage(broker, topics, {"name": "kafka"})
    stage.write(0, 0, 5)
    stage.write(1, 0, 3)
    assert 0 == stage.run()
    stage.store, stage.config["offsets"] = store, {"store": store}
    stage.write(0, 5, 7)

    with capture_logs() as logged:
        code = stage.run()
    told = "".join(each["error"] for each in of_event(logged, "partition_blocked"))
    (arguments,) = set(re.findall(rf"winnow (offsets migrate -c winnow\.yaml --from \w+ --to {store['name']})", told))

    assert (1, {}) == (code, stage.remembered())
    assert {0: lines(0, *range(5)), 1: lines(1, *range(3))} == stage.cleansed()
    file = file_of(stage.config, tmp_path)
    carried = CliRunner().invoke(main, shlex.split(arguments.replace("winnow.yaml", str(file))))
    assert 0 == carried.exit_code, carried.output
    assert 0 == stage.run()
    assert {0: lines(0, *range(7)), 1: lines(1, *range(3))} == stage.cleansed()


@pytest.mark.parametrize("store", ["none"], indirect=True)
def test_nothing_is_remembered(broker: Cluster, topics: Topics, store: dict[str, Any]) -> None:
    """Without a store each start follows the policy."""
    stage = StoreStage(broker, topics, store)
    stage.write(0, 0, 3)

    assert 0 == stage.run()
    assert 0 == stage.run()

    assert lines(0, 0, 1, 2, 0, 1, 2) == stage.cleansed()[0]
