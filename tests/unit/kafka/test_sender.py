"""Where the output of a source partition goes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from app.kafka import settings
from app.kafka.backend import PLAIN, Backend, best_backend
from app.kafka.sender import BY_KEY, Targets
from app.model import Destination, Partition, Partitioner
from app.records import Lines
from tests.fakes import make_task_config

SINK, DEAD = Destination("clean", 3, 1_000_000), Destination("dead", 2, 1_000_000)


def targets(number: int, partitioner: Partitioner, sink: Destination = SINK) -> Targets:
    task_config = make_task_config(sink=sink, dead_letters=DEAD, sink_partitioner=partitioner)
    return Targets.of(task_config, Partition("raw", number))


def test_a_source_partition_has_one_sink_partition() -> None:
    """It is its number modulo the sink's partitions, so the order is kept."""
    found = targets(7, Partitioner.SOURCE)

    assert (1, [1], 1) == (found.line.number, [*found.sink_partitions], found.dead_letter.number)
    assert "clean-1 or dead-1" == str(found)


def test_by_its_key_a_line_may_go_to_any_partition() -> None:
    """Dead letters are not affected, and a sink with one partition leaves no choice."""
    found = targets(7, Partitioner.KEY)

    assert (BY_KEY, [0, 1, 2], 1) == (found.line.number, [*found.sink_partitions], found.dead_letter.number)
    assert "clean-0 to clean-2 or dead-1" == str(found)
    assert 0 == targets(7, Partitioner.KEY, Destination("clean", 1, 1_000_000)).line.number


def test_keys_are_hashed_as_by_java() -> None:
    """Librdkafka's default would choose other partitions than other producers."""
    assert "murmur2_random" == settings.producer(make_task_config())["partitioner"]


@pytest.mark.parametrize("backend", [PLAIN, best_backend({})], ids=["plain", "bulk"])
def test_rows_may_be_read_only(backend: Backend) -> None:
    """So are those that a parser gets from Arrow without a copy."""
    values, rows = pa.array([b"a", b"b"], pa.binary()), pa.array([0, 1], pa.int32()).to_numpy()
    client = Producer({"bootstrap.servers": "localhost:9"}, logger=settings.SILENT)
    sender = backend.sender(client, targets(0, Partitioner.SOURCE))

    assert 2 == sender.offer(Lines(values, rows, values, np.zeros(2, np.int64)), 0)

    client.purge()
    sender.close()
