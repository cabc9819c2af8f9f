"""
The output of earlier releases, read from `tests/data`, or produced by a release itself if its commit is available.

`python -m tests.upgrade 0.2.0` writes the file: it runs 0.2.0 on an embedded Kafka with `given()` until the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pytest
from confluent_kafka import Consumer, TopicPartition

from app.embedded.broker import Broker
from app.offsets.metadata import UNKNOWN, OffsetMetadata
from tests.conftest import Topics
from tests.independent import Record, Written, amiss, line, lines, produce, read, values
from tests.integration.service import Winnow, WinnowOnSpark, settings
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
GOOD, PARTITIONS = 30, 2
"""How many valid lines a release was given in each partition, and how many partitions. One invalid line follows in each."""
SOURCE, SINK, DEAD = "raw", "clean", "dead"
PAGE = {"http": {"port": 0}}
"""Without it two concurrent tests would use the same port."""


class Release(NamedTuple):
    """
    An earlier release.

    Args:
        commit: one that leaves in Kafka what it left there.
        metadata: how the metadata of its offsets begin.
        reason: how it counted the invalid lines that `given()` has.
        page: the settings of its status page; 0.1.0 has none.
    """

    version: str
    commit: str
    metadata: str
    reason: str
    page: Mapping[str, object]

    def __str__(self) -> str:
        return self.version

    @property
    def file(self) -> Path:
        return ROOT / f"tests/data/written-by-{self}.json"

    @property
    def group(self) -> str:
        return f"winnow-{self}"

    @property
    def is_at_hand(self) -> bool:
        """Whether git has the commit. A shallow clone lacks it."""
        command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{self.commit}^{{commit}}"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    @property
    def runs(self) -> pytest.MarkDecorator:
        """Skips a test that runs it where that is impossible."""
        reason = f"git does not have the commit of {self} here: fetch the whole history"
        return pytest.mark.skipif(not self.is_at_hand, reason=reason)


FIRST = Release("0.1.0", "86e68a37cd4acd3175631b5617a8520113f254d4", "winnow topic=", UNKNOWN, {})
LAST = Release("0.2.0", "3dddd22174cf02e5f00b811e95ff873a94577d3f", "winnow/2 topic=", "no_marker", PAGE)
RELEASES = FIRST, LAST


class Stage(NamedTuple):
    """Where a service works: a cluster, a group and its topics."""

    bootstrap: str
    group: str
    source: str
    sink: str
    dead: str


class Left(NamedTuple):
    """
    What a release left in Kafka.

    Args:
        offsets: the committed offset of each source partition, with its metadata, by the partition's number.
        transactional_ids: those that the broker knows, sorted.
        sink: the cleansed records.
        dead: the dead letters.
    """

    offsets: dict[int, tuple[int, str]]
    transactional_ids: list[str]
    sink: list[Written]
    dead: list[Written]


def given() -> list[Written]:
    """Return the records that a release was given."""
    return [
        record
        for partition in range(PARTITIONS)
        for record in (
            *lines(0, GOOD, partition),
            Written(b"bad %d" % partition, b"bad", partition, headers=[("trace", b"7")]),
        )
    ]


def recorded(release: Release) -> Left:
    """Return the content of the release's file."""
    told = json.loads(release.file.read_text("utf-8"))
    records = {
        name: [
            Written(
                bytes.fromhex(each["value"]),
                bytes.fromhex(each["key"]),
                each["partition"],
                each["timestamp"],
                [(name, bytes.fromhex(text)) for name, text in each["headers"]],
            )
            for each in told[name]
        ]
        for name in ("sink", "dead")
    }
    offsets = {int(number): (offset, metadata) for number, (offset, metadata) in told["offsets"].items()}
    return Left(offsets, told["transactional_ids"], **records)


def unpacked(release: Release, folder: Path) -> dict[str, str]:
    """Unpack a release into a folder. Return the environment in which Python and Spark's workers import it."""
    command = ["git", "-C", str(ROOT), "archive", "--format=zip", release.commit, "app", "parsers"]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    ZipFile(BytesIO(packed)).extractall(folder)
    environment = {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    # Otherwise its workers compile the kernels in its first round, which would end too early on a busy machine.
    compiled = [sys.executable, "-c", "import app.kafka.bulk.kernels, parsers.compiled.kernels"]
    subprocess.run(compiled, env={**os.environ, **environment}, check=True)
    return environment


def staged(bootstrap: str, topics: Topics) -> Stage:
    """Create the topics of a test; its group is called like its sink."""
    sink = topics("clean", PARTITIONS)
    return Stage(bootstrap, sink, topics("raw", PARTITIONS), sink, topics("dead", PARTITIONS))


def settings_of(release: Release, stage: Stage) -> dict[str, Any]:
    """Return a configuration for a release."""
    bootstrap, group, source, sink, dead = stage
    config = settings(bootstrap, group=group, sources=[source], sink=sink, dead=dead)
    if not release.page:
        del config["http"]
    return config


def offsets(bootstrap: str, group: str, topic: str) -> dict[int, tuple[int, str]]:
    """Return the committed offset of each partition, with its metadata."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], PATIENCE)
    finally:
        consumer.close()
    return {at.partition: (at.offset, at.metadata or "") for at in found}


def require_it_goes_on(release: Release, stage: Stage, tmp_path: Path) -> None:
    """Run this version after a release."""
    bootstrap, group, source, sink, dead = stage
    before = offsets(bootstrap, group, source)
    for partition in range(PARTITIONS):
        more = [line(n, partition) for n in range(GOOD, 2 * GOOD)] + [b"bad again"]
        produce(bootstrap, source, [Written(value, None, partition) for value in more])

    now = settings_of(release, stage) | PAGE
    with Winnow(now, tmp_path, "--until-end") as current:
        assert 0 == current.code()

    assert all(metadata.startswith(release.metadata) for _, metadata in before.values())
    assert {} == amiss(dict.fromkeys(range(PARTITIONS), 2 * GOOD), read(bootstrap, sink))
    letters = values(read(bootstrap, dead))
    assert sorted([b"bad 0", b"bad 1", b"bad again", b"bad again"]) == sorted(value or b"" for value in letters)
    for offset, text in offsets(bootstrap, group, source).values():
        found = OffsetMetadata.parse(text)
        assert (2 * (GOOD + 1), 0, 2 * (GOOD + 1), 2 * GOOD) == (
            offset,
            found.since,
            found.counts.records,
            found.counts.out,
        )
        assert Counter([release.reason, "no_marker"]) == found.counts.dead


def transactional_ids(bootstrap: str) -> list[str]:
    """Return the ids that the coordinator knows. A key of its log is a version, a length, and the id."""
    return sorted({(record.key or b"")[4:].decode() for record in read(bootstrap, "__transaction_state")})


def _record(release: Release) -> None:
    """Run a release and record its output."""
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        stage = Stage(broker.bootstrap, release.group, SOURCE, SINK, DEAD)
        for name in (SOURCE, SINK, DEAD):
            broker.create_topic(name, PARTITIONS)
        produce(broker.bootstrap, SOURCE, given())
        config = settings_of(release, stage)
        environment = unpacked(release, Path(folder) / release.version)
        with WinnowOnSpark(config, Path(folder), "--until-end", environment=environment) as service:
            if code := service.code():
                sys.exit(f"{release} ended with {code}: {service.noise[-5:]}")
        told = {
            "transactional_ids": transactional_ids(broker.bootstrap),
            "offsets": offsets(broker.bootstrap, release.group, SOURCE),
            "sink": list(map(_told, read(broker.bootstrap, SINK))),
            "dead": list(map(_told, read(broker.bootstrap, DEAD))),
        }
    release.file.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", "utf-8")


def _told(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "key": (record.key or b"").hex(),
        "value": (record.value or b"").hex(),
        "timestamp": record.timestamp,
        "headers": [(name, (text or b"").hex()) for name, text in record.headers],
    }


if __name__ == "__main__":
    _record({str(each): each for each in RELEASES}[sys.argv[1]])
