"""How a writer takes a transactional id from a running producer, on a real broker."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from app.embedded.broker import Cluster
from app.kafka import settings
from app.kafka.clients import TaskClients
from app.kafka.failures import error_of
from app.kafka.fence import ASKED_AGAIN_SECONDS, interrupt
from app.model import Partition, transactional_id
from tests.conftest import Topics
from tests.independent import read, values
from tests.integration.tasks import make_pipeline
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("at_work", [True, False], ids=["in a transaction", "between two"])
def test_the_successor_keeps_the_id(broker: Cluster, topics: Topics, at_work: bool) -> None:
    """The open transaction is aborted and the interrupting client closed: its retry would fence the successor."""
    sink = topics("clean")
    configured: settings.Settings = {
        "bootstrap.servers": broker.bootstrap,
        "transactional.id": sink,
        "retry.backoff.ms": settings.RETRY_BACKOFF_MS,
    }
    earlier, later = Producer(configured), Producer(configured)
    earlier.init_transactions(PATIENCE)
    if at_work:
        earlier.begin_transaction()
        earlier.produce(sink, b"aborted")
        earlier.flush(PATIENCE)

    interrupt(Producer, configured, sink)
    later.init_transactions(PATIENCE)

    began, committed = time.monotonic(), list[bytes]()

    def commits_again() -> bool:
        later.begin_transaction()
        later.produce(sink, b"%d" % len(committed))
        later.commit_transaction(PATIENCE)
        committed.append(b"%d" % len(committed))
        return time.monotonic() - began > 3 * ASKED_AGAIN_SECONDS

    until(commits_again, "it has committed for longer than librdkafka waits")
    assert committed == values(read(broker.bootstrap, sink))
    if not at_work:
        earlier.begin_transaction()
        earlier.produce(sink, b"fenced")
    with pytest.raises(KafkaException) as fenced:
        earlier.commit_transaction(PATIENCE)
    assert error_of(fenced.value).fatal()


@pytest.mark.parametrize("in_use", [True, False])
def test_only_a_task_that_takes_over_interrupts(broker: Cluster, topics: Topics, in_use: bool) -> None:
    """Only a task that takes over interrupts. In other tasks another client per partition would be wasted."""
    made: list[str] = []

    def making(configured: dict[str, Any], **more: Any) -> Producer:
        made.append(configured["transactional.id"])
        return Producer(configured, **more)

    pipeline = make_pipeline(broker.bootstrap, topics)
    clients = TaskClients(pipeline.task_config, producer=making, in_use=in_use)
    writer = clients.writer(Partition(pipeline.source, 0), clients.offsets())

    writer.open()

    assert 1 + in_use == len(made) == made.count(transactional_id(pipeline.group, Partition(pipeline.source, 0)))
    writer.discard()
