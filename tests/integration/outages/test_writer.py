"""A writer waits for a broker that freezes or is lost."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import numpy as np
import psutil
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition, cimpl
from structlog.testing import capture_logs

from app.embedded.broker import Broker
from app.errors import Fenced, Transient
from app.kafka.bulk import native
from app.kafka.clients import TaskClients
from app.model import Destination, Guarantee, Outcome, Partition, Plugin, TaskConfig
from app.records import Lines
from tests.chaos.cluster import stopped
from tests.independent import Written, by_partition, cleansed, line, produce
from tests.integration.tasks import Pipeline
from tests.support.waiting import until, without

PARTITIONS, LINES = 2, 2_000


def test_a_fence_while_a_log_line_is_served(mortal: Broker) -> None:
    """A writer that is fenced while it waits for records in flight, and while librdkafka logs, raises Fenced."""
    raw, clean, letters = (mortal.create_topic(f"fenced.{role}") for role in ("raw", "clean", "dead"))
    kafka = {"bootstrap.servers": mortal.bootstrap, "debug": "all", "log_level": "7"}
    sink, dead = Destination(clean, 1, 1_000_000), Destination(letters, 1, 1_000_000)
    task_config = TaskConfig("fenced", Guarantee.EXACTLY_ONCE, sink, dead, "raw", Plugin("idc-access-log"), kafka)
    made: list[confluent_kafka.Producer] = []

    def making(*settings: Any, **more: Any) -> confluent_kafka.Producer:
        made.append(confluent_kafka.Producer(*settings, **more))
        return made[-1]

    clients = TaskClients(task_config, producer=making)
    offsets = clients.offsets()
    array = pa.array([cleansed(0)], pa.binary())
    lines = Lines(array, np.zeros(1, np.int32), array, np.zeros(1, np.int64))

    def begun() -> Any:
        """Return a writer that has committed; the broker may have just started."""
        writer = clients.writer(Partition(raw, 0), offsets)
        try:
            writer.open()
            writer.send(lines)
            writer.commit(1, "")
        except Transient:
            writer.discard()
            raise
        return writer

    writer = without(Transient, begun, "a commit")
    (server,) = psutil.Process(mortal.pids[0]).children()

    with stopped(server):
        writer.send(lines)
        _lose(made[-1])
        with pytest.raises(Fenced):
            writer.commit(2, "")

    writer.discard()


def _lose(client: confluent_kafka.Producer) -> None:
    """Fence the client through librdkafka's test function."""
    fatal = ctypes.CDLL(cimpl.__file__).rd_kafka_test_fatal_error
    fatal.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    fatal(native.handle(client), KafkaError.PRODUCER_FENCED, b"planted")


def test_an_offset_that_is_sent_for_a_minute(mortal: Broker) -> None:
    """
    The only broker dies before the offsets are sent, and librdkafka ignores the timeout of that call (#5456).

    The task does not wait for the call: when the broker is back, new producers take over, and each line arrives once.
    """
    raw, clean, dead = (mortal.create_topic(f"sent.{role}", PARTITIONS) for role in ("raw", "clean", "dead"))
    produce(mortal.bootstrap, raw, [Written(line(n), partition=n % PARTITIONS) for n in range(LINES)])
    dies = threading.Event()

    class KillingProducer(confluent_kafka.Producer):
        def send_offsets_to_transaction(self, positions: list[TopicPartition], *args: Any) -> None:
            if positions[0].offset and not dies.is_set():
                dies.set()
                mortal.kill()
            super().send_offsets_to_transaction(positions, *args)

    pipeline = Pipeline(mortal.bootstrap, {raw: PARTITIONS}, clean, dead, "sent", Guarantee.EXACTLY_ONCE)
    pipeline.producer = KillingProducer
    with capture_logs() as logs, ThreadPoolExecutor(1) as threads:
        task = threads.submit(pipeline.run)
        until(lambda: hanging(logs), "a call that does not return")
        mortal.start()
        receipts = task.result().values()

    assert [(Outcome.DONE, LINES // PARTITIONS)] * PARTITIONS == [(each.outcome, each.records) for each in receipts]
    expected = {number: [cleansed(n) for n in range(number, LINES, PARTITIONS)] for number in range(PARTITIONS)}
    assert expected == by_partition(pipeline.cleansed())


def hanging(logs: Sequence[MutableMapping[str, Any]]) -> bool:
    """Whether a new producer takes over from a call that does not return."""
    error = "send_offsets_to_transaction (5 s) did not return; replacing the producer"
    return any(error in entry.get("error", "") for entry in logs)
