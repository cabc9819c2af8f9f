"""`winnow run` behind a real Flume agent: a socket, a channel on disk, Kafka, the service."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path
from typing import Any, cast

import fastavro
import pytest

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Record, by_partition, cleanse, line, read
from tests.integration.service import Winnow, settings
from tests.integration.tasks import until
from tests.servers.flume import FlumeAgent

AVRO = fastavro.parse_schema(
    {
        "type": "record",
        "name": "AvroFlumeEvent",
        "fields": [{"name": "headers", "type": {"type": "map", "values": "string"}}, {"name": "body", "type": "bytes"}],
    }
)
LINES, BEFORE_THE_KILL = 400, 150
PARTITIONS = 2


def line_of(record: Record, source_format: str) -> bytes:
    """Return the line in a record that Flume has written."""
    value = record.value or b""
    if source_format == "raw":
        return value
    event: Any = fastavro.schemaless_reader(io.BytesIO(value), AVRO, None)
    return cast("bytes", event["body"])


@pytest.mark.parametrize("source_format", ["raw", "flume-avro"])
def test_lines_from_flume(broker: Cluster, topics: Topics, tmp_path: Path, source_format: str) -> None:
    """Flume, killed and started again, brings each line at least once; from Kafka on each is cleansed exactly once."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    config["source"]["format"] = source_format
    lines = [line(n) if n % 10 else b"bad %d" % n for n in range(LINES)]

    def arrived(topic: str) -> list[bytes]:
        return [line_of(record, source_format) for record in read(broker.bootstrap, topic)]

    def written() -> int:
        return len(read(broker.bootstrap, sink)) + len(read(broker.bootstrap, dead))

    with (
        Winnow(config, tmp_path) as service,
        FlumeAgent(tmp_path, broker.bootstrap, source, avro=source_format == "flume-avro") as flume,
    ):
        answered = list(islice(flume.send(lines), BEFORE_THE_KILL))
        flume.kill()
        flume.start()
        answered += flume.send(lines[len(answered) :])
        until(lambda: set(lines) <= set(arrived(source)), what="every line")
        flume.stop()
        total = len(arrived(source))
        until(lambda: written() >= total, what="the rest")
        code = service.stop()

    clean: dict[int, list[bytes]] = defaultdict(list)
    for record in read(broker.bootstrap, source):
        clean[record.partition] += filter(None, [cleanse(line_of(record, source_format))])
    assert 0 == code
    assert lines == answered
    assert clean == by_partition(read(broker.bootstrap, sink))
    assert Counter(each for each in arrived(source) if not cleanse(each)) == Counter(arrived(dead))
