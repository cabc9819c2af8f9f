"""A log that loses its end and grows again, on a real Kafka: the stored leader epoch reveals it (KIP-320)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from app.embedded.broker import Broker
from app.kafka.backend import Backend
from app.model import Guarantee, Outcome, Partition
from app.offsets.metadata import OffsetMetadata
from tests.independent import Written, cleansed, committed, connect_again, line, produce, read, values
from tests.integration.service import Winnow, settings
from tests.integration.tasks import BOTH_BACKENDS, Pipeline
from tests.support.waiting import PATIENCE, until


def write(broker: Broker, topic: str, first: int, last: int) -> None:
    """Write numbered lines, at most one batch."""
    produce(broker.bootstrap, topic, [Written(line(n), None, 0) for n in range(first, last)])


def cut(broker: Broker, topic: str, offset: int) -> None:
    """
    Truncate a partition as an unclean election does: the next leader has fewer records and a later epoch.

    The broker is killed meanwhile. `offset` must be the start of a batch in the last segment.
    """
    broker.kill()
    (folder,) = broker.folder.glob(f"node-1/data/{topic}-0")
    log = max(folder.glob("*.log"))
    with log.open("r+b") as file:
        file.truncate(_position_of(offset, log.read_bytes()))
    for file_of_the_old_end in (*folder.glob("*.*index"), *folder.glob("*.snapshot")):
        file_of_the_old_end.unlink()  # the broker recreates them
    broker.start()
    connect_again()


def _position_of(offset: int, log: bytes) -> int:
    position = 0
    while position < len(log):
        base, size = struct.unpack_from(">qi", log, position)
        if base == offset:
            return position
        position += 12 + size
    message = f"no batch begins at offset {offset}"
    raise AssertionError(message)


def make_pipeline(broker: Broker, name: str, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> Pipeline:
    source, sink, dead = (broker.create_topic(f"{name}.{role}") for role in ("raw", "clean", "dead"))
    return Pipeline(broker.bootstrap, {source: 1}, sink, dead, name, guarantee)


def config_of(pipeline: Pipeline) -> dict[str, Any]:
    """Return the configuration of a service on a pipeline's topics."""
    source, sink, dead = pipeline.source, pipeline.sink, pipeline.dead
    return settings(pipeline.bootstrap, group=pipeline.group, sources=[source], sink=sink, dead=dead)


def read_again(pipeline: Pipeline, folder: Path) -> tuple[int, int]:
    """Run a service that goes on at the nearest offset, up to the end. Return the offsets that it logs to read again."""
    with Winnow(config_of(pipeline) | {"out.of.range": "nearest"}, folder, "--until-end") as service:
        assert 0 == service.code()
    (moved,) = service.logged("offsets_reread")
    return moved["start"], moved["end"]


@BOTH_BACKENDS
def test_a_task_finds_that_its_log_was_cut(mortal: Broker, backend: Backend) -> None:
    """A task reports that other records replaced those already read, with either backend, and does not skip them."""
    pipeline = make_pipeline(mortal, f"cut-{backend.name}")
    pipeline.backend = backend
    place = Partition(pipeline.source, 0)
    write(mortal, pipeline.source, 0, 90)
    write(mortal, pipeline.source, 90, 100)
    assert Outcome.DONE is pipeline.run()[place].outcome
    pipeline.settle()

    cut(mortal, pipeline.source, 90)
    write(mortal, pipeline.source, 500, 550)
    receipt = pipeline.run()[place]

    assert (Outcome.BLOCKED, 90, 100) == (receipt.outcome, OffsetMetadata.parse(receipt.metadata).cut, receipt.end)
    assert "offsets 90 to 99 are not the ones already read" in receipt.error
    assert [cleansed(n) for n in range(100)] == values(pipeline.cleansed())


def test_a_service_that_starts_goes_on_where_the_log_was_cut(mortal: Broker, tmp_path: Path) -> None:
    """The log has grown again, but not up to the offset: before its end are records that nobody has read."""
    pipeline = make_pipeline(mortal, "grown")
    write(mortal, pipeline.source, 0, 90)
    write(mortal, pipeline.source, 90, 100)
    pipeline.run()
    pipeline.settle()
    cut(mortal, pipeline.source, 90)
    write(mortal, pipeline.source, 500, 505)

    assert (90, 100) == read_again(pipeline, tmp_path)
    assert [cleansed(n) for n in (*range(100), *range(500, 505))] == values(read(mortal.bootstrap, pipeline.sink))


def test_a_log_may_lose_only_what_no_reader_sees(mortal: Broker, tmp_path: Path) -> None:
    """Behind the last line read were aborted and control records. Nothing follows it now, and the service works."""
    pipeline = make_pipeline(mortal, "unseen")
    write(mortal, pipeline.source, 0, 90)
    abort(mortal, pipeline.source)
    pipeline.run()
    pipeline.settle()
    cut(mortal, pipeline.source, 90)

    assert (90, 92) == read_again(pipeline, tmp_path)
    assert [cleansed(n) for n in range(90)] == values(read(mortal.bootstrap, pipeline.sink))


def test_a_new_leader_without_a_loss_changes_nothing(mortal: Broker) -> None:
    """A new leader epoch after a restart is no truncation, even behind control records and aborted records."""
    pipeline = make_pipeline(mortal, "restart")
    place = Partition(pipeline.source, 0)
    write(mortal, pipeline.source, 0, 10)
    pipeline.run()
    for last in (20, 30):
        pipeline.settle()
        mortal.kill()
        mortal.start()
        connect_again()
        abort(mortal, pipeline.source)
        assert Outcome.DONE is pipeline.run()[place].outcome
        write(mortal, pipeline.source, last - 10, last)
        assert Outcome.DONE is pipeline.run()[place].outcome

    assert [cleansed(n) for n in range(30)] == values(pipeline.cleansed())
    assert {(pipeline.source, 0): 0} == pipeline.lag()


def abort(broker: Broker, topic: str) -> None:
    """Write aborted records, which leave a control record behind."""
    client = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    client.init_transactions(PATIENCE)
    client.begin_transaction()
    client.produce(topic, b"aborted", partition=0)
    client.flush(PATIENCE)
    client.abort_transaction(PATIENCE)


def test_the_service_waits_for_a_person(mortal: Broker, tmp_path: Path) -> None:
    """
    Each truncation, with the service running or stopped, is reported with the offsets and the cure.

    With a policy the service continues by itself and names what it reads again.
    """
    pipeline = make_pipeline(mortal, "service")
    config = config_of(pipeline)
    write(mortal, pipeline.source, 0, 90)
    with Winnow(config, tmp_path) as service:
        until(lambda: committed(mortal.bootstrap, "service", pipeline.source) == {(pipeline.source, 0): 90})
        write(mortal, pipeline.source, 90, 100)
        until(lambda: committed(mortal.bootstrap, "service", pipeline.source) == {(pipeline.source, 0): 100})
        cut(mortal, pipeline.source, 90)
        write(mortal, pipeline.source, 500, 550)
        while_it_ran = service.wait_for("partition_blocked")["error"]
        assert 0 == service.stop()
    with Winnow(config, tmp_path, "--until-end") as again:
        assert 1 == again.code()
    (while_stopped,) = {event["error"] for event in again.logged("partition_blocked")}

    for error in (while_it_ran, while_stopped):
        assert error.startswith(f"{pipeline.source}-0@100: the partition was truncated to 90")
        assert "offsets 90 to 99" in error
        assert "set out.of.range to nearest" in error
    assert [cleansed(n) for n in range(100)] == values(read(mortal.bootstrap, pipeline.sink))

    assert (90, 100) == read_again(pipeline, tmp_path)
    with Winnow(config, tmp_path, "--until-end") as mended:
        assert 0 == mended.code()
    assert [cleansed(n) for n in (*range(100), *range(500, 550))] == values(read(mortal.bootstrap, pipeline.sink))
