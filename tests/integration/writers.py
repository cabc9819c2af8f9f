"""Writers without a task, and what they write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

from app.kafka.acknowledged import AcknowledgedWriter
from app.kafka.backend import Backend
from app.kafka.clients import TaskClients
from app.kafka.writers import TransactionalWriter
from app.model import Partition
from app.records import Lines, OutgoingRecord
from tests.integration.tasks import Pipeline
from tests.support.waiting import PATIENCE, until

LIMITS = (
    *(f"writers.{what}_SECONDS" for what in ("ABORT", "COMMIT", "CONTROL", "FULL_QUEUE")),
    *(f"offsets.{what}_SECONDS" for what in ("COMMIT", "TASK")),
)
"""For how long a writer waits for Kafka."""


@contextmanager
def writing(pipeline: Pipeline, backend: Backend) -> Iterator[TransactionalWriter | AcknowledgedWriter]:
    """Open a writer for the first partition. No lane opens another one, so Kafka may take as long as it needs."""
    clients = TaskClients(pipeline.task_config, backend)
    writer = clients.writer(Partition(pipeline.source, 0), clients.offsets())
    with pytest.MonkeyPatch.context() as patient:
        for name in LIMITS:
            patient.setattr(f"app.kafka.{name}", PATIENCE)
        try:
            yield writer
        finally:
            writer.discard()


def deliver(writer: TransactionalWriter | AcknowledgedWriter) -> None:
    """Wait until everything that was sent is acknowledged."""

    def delivered() -> bool:
        writer.free()
        return writer.waiting == 0

    until(delivered, "all records are acknowledged")


def make_lines(*texts: bytes | None, key: bytes | None = None, timestamp: int = 1) -> Lines:
    """Make lines that all have this key."""
    rows = np.zeros(len(texts), np.int32)
    return Lines(pa.array(texts, pa.binary()), rows, pa.array([key], pa.binary()), np.array([timestamp]))


def make_dead_letters(source: Partition, first: int, last: int) -> list[OutgoingRecord]:
    """Return dead letters from the fifth offset on."""
    origin = [("__connect.errors.topic", source.topic.encode()), ("__connect.errors.partition", b"%d" % source.number)]
    return [
        OutgoingRecord(None, b"%d" % n, [*origin, ("__connect.errors.offset", b"%d" % (5 + n))], 0)
        for n in range(first, last)
    ]
