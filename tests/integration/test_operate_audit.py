"""`winnow audit` on a real Kafka, of what the service wrote and of damage done since."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition

from app.cli import main
from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, arrived, client, produce, read
from tests.integration.audits import BEGAN, audit, records
from tests.integration.in_process import Running, run
from tests.integration.service import settings
from tests.support.configuration import file_of
from tests.support.waiting import PATIENCE


def summary(file: Path) -> tuple[int, str]:
    """Run it for a person, who reads its last line."""
    done = CliRunner().invoke(main, ["audit", "-c", str(file), "--from", str(BEGAN)])
    return done.exit_code, (done.stdout + done.stderr).splitlines()[-1]


@pytest.mark.parametrize("more", [{}, {"key": "houseid", "partitioner": "key"}], ids=["by source", "by key"])
def test_each_anomaly_is_found_where_it_is(
    broker: Cluster, topics: Topics, tmp_path: Path, more: dict[str, str]
) -> None:
    """An undamaged sink passes; a copy, a foreign line and a missing line are one finding each."""
    source, sink, dead, broken = topics("raw", 3), topics("clean", 2), topics("dead", 2), topics("broken", 2)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    config["sink"] |= more
    file = file_of(config, tmp_path)
    produce(broker.bootstrap, source, records(0, 300))
    assert 0 == run(config)[0]

    good, sampled = audit(file), audit(file, "--from", str(BEGAN), "--sample", "20")
    part = audit(file, "--from", str(BEGAN + 100), "--to", str(BEGAN + 160))
    code, found = audit(file, "--from", str(BEGAN), "--set", f"sink.topic={spoil(broker, sink, broken)}")

    assert (0, 300, []) == (good[0], good[1]["records"], good[1]["findings"])
    assert (0, 60, []) == (sampled[0], sampled[1]["records"], sampled[1]["findings"])
    assert (0, 60) == (part[0], part[1]["records"])
    kinds = {"lost": 40, "changed": 50, "doubled": 60, "unexplained": None}
    assert (1, list(kinds)) == (code, [kind for kind in kinds if found[kind] == 1])
    assert 4 == len(found["findings"])
    lines = [each for each in read(broker.bootstrap, sink) if each.timestamp is not None]
    numbers = {number: lines[number].timestamp - BEGAN if number else None for number in kinds.values()}
    assert {kind: numbers[number] for kind, number in kinds.items()} == {
        each["kind"]: None if each["offset"] is None else each["partition"] + 3 * each["offset"]
        for each in found["findings"]
    }


def spoil(broker: Cluster, sink: str, broken: str) -> str:
    """Copy lines, without one, with one changed, one duplicated an hour later, and one that no record explains."""
    lines = [Written(each.value, each.key, each.partition, each.timestamp) for each in read(broker.bootstrap, sink)]
    lost, changed, doubled = lines[40], lines[50], lines[60]
    copy = [each._replace(value=b"x") if each is changed else each for each in lines if each is not lost]
    hour_later = doubled._replace(value=b"of another day", timestamp=BEGAN - 1)
    stranger = doubled._replace(timestamp=BEGAN + 3_600_000)
    produce(broker.bootstrap, broken, [*copy, hour_later, stranger, doubled])
    return broken


def test_what_cannot_be_judged(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Records deleted by retention and partitions without an offset are reported as unjudged, also by the exit code."""
    source, sink, dead = topics("raw", 3), topics("clean", 2), topics("dead", 2)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    file = file_of(config, tmp_path)
    produce(broker.bootstrap, source, records(0, 300))
    assert 0 == run(config)[0]
    late = records(0, 300)[291]  # in the first partition; its line is one of the last
    letter = Written(late.value, late.key, 0, late.timestamp, headers=letter_headers(source, 0, 97))

    misspelt = audit(file, "--from", str(BEGAN), "--set", f"group.id={sink}x")
    whole = summary(file)
    taken = [TopicPartition(sink, 0, 20), TopicPartition(dead, 1, 4)]
    for future in client(broker.bootstrap).delete_records(taken).values():
        future.result(PATIENCE)
    partly = summary(file)
    produce(broker.bootstrap, dead, [letter])
    code, found = audit(file)

    assert (4, 0, 300) == (misspelt[0], misspelt[1]["records"], misspelt[1]["not_judged"]["no_offset"])
    assert (0, f"group {sink}: 300 records audited: all correct") == whole
    assert 4 == partly[0]
    assert partly[1].startswith(f"group {sink}: 276 records audited: no fault found in these; not judged: 24 expired")
    assert (1, 1, 0) == (code, found["both"], found["lost"])
    assert (24, 276) == (found["not_judged"]["expired"], found["records"])


def letter_headers(topic: str, partition: int, offset: int) -> list[tuple[str, bytes | None]]:
    place = {"stage": "x", "topic": topic, "partition": partition, "offset": offset, "exception.class.name": "refused"}
    return [(f"__connect.errors.{name}", str(value).encode()) for name, value in place.items()]


def test_beside_a_running_service(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """An audit judges what is committed, while more records flow."""
    source, sink, dead = topics("raw", 3), topics("clean", 2), topics("dead", 2)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    file = file_of(config, tmp_path)
    with Running(config):
        audited = 0
        for begin in range(0, 1_500, 300):
            produce(broker.bootstrap, source, records(begin, begin + 300))
            arrived(broker.bootstrap, sink, begin * 4 // 5 + 161)  # all earlier ones, and some of each source partition
            code, found = audit(file)
            assert (0, []) == (code, found.get("findings", found))
            audited = max(audited, found["records"])

    assert 1_200 < audited <= 1_500
