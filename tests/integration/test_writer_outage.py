"""A writer whose broker freezes, or is lost, while the writer waits for it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import confluent_kafka
import numpy as np
import psutil
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, cimpl

from app.embedded.broker import Broker
from app.errors import Fenced
from app.kafka.bulk import native
from app.kafka.clients import TaskClients
from app.model import Destination, Guarantee, Partition, Plugin, TaskConfig
from app.records import Lines
from tests.chaos.cluster import stopped
from tests.conftest import QUICK_JAVA
from tests.independent import cleansed


@pytest.fixture
def mortal() -> Iterator[Broker]:
    """Return a broker that a test may harm."""
    with Broker(java=QUICK_JAVA) as broker:
        yield broker


def test_a_fence_while_a_log_line_is_served(mortal: Broker) -> None:
    """A writer that is fenced while it waits for records in flight, and while librdkafka logs, raises Fenced."""
    for topic in ("raw", "clean", "dead"):
        mortal.create_topic(topic)
    kafka = {"bootstrap.servers": mortal.bootstrap, "debug": "all", "log_level": "7"}
    sink, dead = Destination("clean", 1, 1_000_000), Destination("dead", 1, 1_000_000)
    task_config = TaskConfig("group", Guarantee.EXACTLY_ONCE, sink, dead, "raw", Plugin("idc-access-log"), kafka)
    clients = TaskClients(task_config)
    consumer = clients.consumer()
    writer = clients.writer(Partition("raw", 0), clients.offsets(consumer))
    values = pa.array([cleansed(0)], pa.binary())
    lines = Lines(values, np.zeros(1, np.int32), values, np.zeros(1, np.int64))
    writer.open()
    writer.send(lines)
    writer.commit(1, "")
    (server,) = psutil.Process(mortal.pids[0]).children()

    with stopped(server):
        writer.send(lines)
        _lose(writer._client)
        with pytest.raises(Fenced):
            writer.commit(2, "")

    writer.discard()
    consumer.close()


def _lose(client: confluent_kafka.Producer) -> None:
    """Fence the client through librdkafka's test function."""
    fatal = ctypes.CDLL(cimpl.__file__).rd_kafka_test_fatal_error
    fatal.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    fatal(native.handle(client), KafkaError.PRODUCER_FENCED, b"planted")
