"""`winnow run` behind a real Flume agent: a socket, a channel on disk, Kafka, the service."""

from __future__ import annotations

import io
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest

from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.data.make import EVENT
from tests.independent import Record, cleanse, line, read
from tests.integration.service import Winnow, settings
from tests.servers.flume import FlumeAgent
from tests.support.waiting import until

LINES, BEFORE_THE_KILL = 400, 150
PARTITIONS = 2


class Arrived(NamedTuple):
    """A record written by Flume: the line, and the headers that its cleansed line keeps."""

    line: bytes
    headers: list[tuple[str, bytes]]


def opened(record: Record, *, avro: bool) -> Arrived:
    """Decode a record written by Flume."""
    value = record.value or b""
    if not avro:
        return Arrived(value, [])
    event: Any = fastavro.schemaless_reader(io.BytesIO(value), EVENT, None)
    return Arrived(event["body"], [(name, event["headers"][name].encode()) for name in ("timestamp", "host")])


@pytest.mark.parametrize("avro", [False, True], ids=["bodies", "events"])
def test_lines_from_flume(broker: Cluster, topics: Topics, tmp_path: Path, avro: bool) -> None:
    """Flume, killed and restarted, delivers each line at least once. From Kafka on each is cleansed exactly once."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    if avro:
        config["source"] |= {"format": "flume-avro", "flume.headers": ["timestamp", "host"]}
    lines = [line(n) if n % 10 else b"bad %d" % n for n in range(LINES)]

    def lines_in(topic: str) -> list[bytes]:
        return [opened(record, avro=avro).line for record in read(broker.bootstrap, topic)]

    def written() -> int:
        return len(read(broker.bootstrap, sink)) + len(read(broker.bootstrap, dead))

    with (
        Winnow(config, tmp_path) as service,
        FlumeAgent(tmp_path, broker.bootstrap, source, avro=avro) as flume,
    ):
        answered = list(islice(flume.send(lines), BEFORE_THE_KILL))
        flume.kill()
        flume.start()
        answered += flume.send(lines[len(answered) :])
        until(lambda: set(lines) <= set(lines_in(source)), "every line")
        flume.stop()
        until(lambda: written() >= len(lines_in(source)), "the rest")
        code = service.stop()

    expected = []
    for record in read(broker.bootstrap, source):
        text, headers = opened(record, avro=avro)
        expected += [(record.partition, clean, headers) for clean in [cleanse(text)] if clean]
    found = [(record.partition, record.value, record.kept_headers) for record in read(broker.bootstrap, sink)]
    assert 0 == code
    assert lines == answered
    assert expected == found
    assert Counter(each for each in lines_in(source) if not cleanse(each)) == Counter(lines_in(dead))
