"""What writers say of a producer that has failed for good. Without a broker; librdkafka plays one for transactions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, cimpl

from app.errors import Transient
from app.kafka.acknowledged import AcknowledgedWriter
from app.kafka.backend import PLAIN, Backend, best_backend
from app.kafka.bulk import native
from app.kafka.clients import TaskClients
from app.kafka.writers import TransactionalWriter
from app.model import CommittedOffset, Guarantee, Partition
from app.records import Lines
from tests.fakes import FakeKafka, FakeOffsets, make_task_config

RAW = Partition("raw", 0)
LINES = Lines(
    pa.array([b"x"], pa.binary()), np.zeros(1, np.int32), pa.array([b"k"], pa.binary()), np.zeros(1, np.int64)
)
NOWHERE = {"bootstrap.servers": "localhost:9"}
KAFKA = {Guarantee.AT_LEAST_ONCE: NOWHERE, Guarantee.EXACTLY_ONCE: NOWHERE | {"test.mock.num.brokers": "1"}}


def send(writer: TransactionalWriter | AcknowledgedWriter) -> None:
    writer.send(LINES)


def commit(writer: TransactionalWriter | AcknowledgedWriter) -> None:
    writer.commit(1, "")


@pytest.mark.parametrize("call", [send, commit])
@pytest.mark.parametrize("backend", [PLAIN, best_backend({})], ids=["plain", "bulk"])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_fatal_error_is_named(
    guarantee: Guarantee, backend: Backend, call: Callable[[TransactionalWriter | AcknowledgedWriter], None]
) -> None:
    """Not the purge of the records that wait, nor the answer to a question about a transaction that there is not."""
    made: list[confluent_kafka.Producer] = []

    def making(*settings: Any, **more: Any) -> confluent_kafka.Producer:
        made.append(confluent_kafka.Producer(*settings, **more))
        return made[-1]

    clients = TaskClients(make_task_config(guarantee, kafka=KAFKA[guarantee]), backend, making)
    writer = clients.writer(RAW, clients.offsets())
    writer.open()
    writer.send(LINES)
    fatal = ctypes.CDLL(cimpl.__file__).rd_kafka_test_fatal_error
    fatal.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    fatal(native.handle(made[-1]), KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"planted")

    with pytest.raises(Transient, match=r"planted \(OUT_OF_ORDER_SEQUENCE_NUMBER\)"):
        call(writer)

    writer.discard()


def test_without_transactions_it_begins_only_where_the_offset_can_be_saved() -> None:
    """Otherwise the lines that it writes would come again at each retry."""
    kafka = FakeKafka({RAW: []})
    clients = TaskClients(make_task_config(Guarantee.AT_LEAST_ONCE, kafka=NOWHERE), PLAIN)
    writer = clients.writer(RAW, FakeOffsets(kafka))

    writer.settle(CommittedOffset(1, "kept"))
    assert CommittedOffset(1, "kept") == kafka.committed[RAW]

    kafka.saves_left = 0
    with pytest.raises(Transient, match="may not have been stored"):
        writer.settle(CommittedOffset(1, "kept"))

    writer.discard()
