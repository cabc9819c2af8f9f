"""
The output of Winnow 0.1.0, read from `tests/data`, or produced by 0.1.0 itself if its commit is available.

`python -m tests.upgrade` writes the file: it runs 0.1.0 on an embedded Kafka with `given()` until the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from app.embedded.broker import Broker
from app.offsets.metadata import UNKNOWN, OffsetMetadata
from tests.independent import Record, Written, amiss, line, lines, produce, read, values
from tests.integration.service import Winnow, WinnowOnSpark, settings

COMMIT = "86e68a37cd4acd3175631b5617a8520113f254d4"
"""The last commit of 0.1.0, before the second version of the offset metadata."""
ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests/data/written-by-0.1.0.json"
GOOD, PARTITIONS = 30, 2
"""How many valid lines 0.1.0 was given in each partition, and how many partitions. One invalid line follows in each."""
SOURCE, SINK, DEAD, GROUP = "raw", "clean", "dead", "winnow-0.1.0"
PAGE = {"http": {"port": 0}}
"""Settings unknown to 0.1.0. Without them two concurrent tests would use the same port."""


class Left(NamedTuple):
    """
    What 0.1.0 left in Kafka.

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
    """Return the records that 0.1.0 was given."""
    return [
        record
        for partition in range(PARTITIONS)
        for record in (
            *lines(0, GOOD, partition),
            Written(b"bad %d" % partition, b"bad", partition, headers=[("trace", b"7")]),
        )
    ]


def recorded() -> Left:
    """Return the content of the file."""
    told = json.loads(FILE.read_text("utf-8"))
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


def is_at_hand() -> bool:
    """Return whether git has the commit. A shallow clone lacks it."""
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


FIRST_VERSION_RUNS = pytest.mark.skipif(
    not is_at_hand(), reason="git does not have the commit of 0.1.0 here: fetch the whole history"
)


def unpacked(folder: Path) -> dict[str, str]:
    """Unpack 0.1.0 into a folder. Return the environment in which Python and Spark's workers import it."""
    command = ["git", "-C", str(ROOT), "archive", COMMIT, "app", "parsers"]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as tar:
        tar.extractall(folder, filter="data")
    environment = {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    # Otherwise its workers compile the kernels in its first round, which would end too early on a busy machine.
    compiled = [sys.executable, "-c", "import app.kafka.bulk.kernels, parsers.compiled.kernels"]
    subprocess.run(compiled, env={**os.environ, **environment}, check=True)
    return environment


def settings_of(bootstrap: str, group: str, source: str, sink: str, dead: str) -> dict[str, Any]:
    """Return a configuration for 0.1.0, which has no status page."""
    config = settings(bootstrap, group=group, sources=[source], sink=sink, dead=dead)
    del config["http"]
    return config


def offsets(bootstrap: str, group: str, topic: str) -> dict[int, tuple[int, str]]:
    """Return the committed offset of each partition, with its metadata."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], 60)
    finally:
        consumer.close()
    return {at.partition: (at.offset, at.metadata or "") for at in found}


def require_it_goes_on(bootstrap: str, tmp_path: Path, source: str, sink: str, dead: str) -> None:
    """Run this version after 0.1.0."""
    before = offsets(bootstrap, sink, source)
    for partition in range(PARTITIONS):
        more = [line(n, partition) for n in range(GOOD, 2 * GOOD)] + [b"bad again"]
        produce(bootstrap, source, [Written(value, None, partition) for value in more])

    now = settings_of(bootstrap, sink, source, sink, dead) | PAGE
    with Winnow(now, tmp_path, "--until-end") as current:
        assert 0 == current.code()

    assert all(metadata.startswith("winnow topic=") for _, metadata in before.values())
    assert {} == amiss(dict.fromkeys(range(PARTITIONS), 2 * GOOD), read(bootstrap, sink))
    letters = values(read(bootstrap, dead))
    assert sorted([b"bad 0", b"bad 1", b"bad again", b"bad again"]) == sorted(value or b"" for value in letters)
    for offset, text in offsets(bootstrap, sink, source).values():
        found = OffsetMetadata.parse(text)
        assert (2 * (GOOD + 1), 0, 2 * (GOOD + 1), 2 * GOOD) == (
            offset,
            found.since,
            found.counts.records,
            found.counts.out,
        )
        assert {UNKNOWN: 1, "no_marker": 1} == found.counts.dead


def transactional_ids(bootstrap: str) -> list[str]:
    """Return the ids that the coordinator knows. A key of its log is a version, a length, and the id."""
    return sorted({(record.key or b"")[4:].decode() for record in read(bootstrap, "__transaction_state")})


def _record() -> None:
    """Run 0.1.0 and record its output."""
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        for name in (SOURCE, SINK, DEAD):
            broker.create_topic(name, PARTITIONS)
        produce(broker.bootstrap, SOURCE, given())
        config = settings_of(broker.bootstrap, GROUP, SOURCE, SINK, DEAD)
        environment = unpacked(Path(folder) / "0.1.0")
        with WinnowOnSpark(config, Path(folder), "--until-end", environment=environment) as service:
            if code := service.code():
                sys.exit(f"0.1.0 ended with {code}: {service.noise[-5:]}")
        told = {
            "transactional_ids": transactional_ids(broker.bootstrap),
            "offsets": offsets(broker.bootstrap, GROUP, SOURCE),
            "sink": list(map(_told, read(broker.bootstrap, SINK))),
            "dead": list(map(_told, read(broker.bootstrap, DEAD))),
        }
    FILE.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", "utf-8")


def _told(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "key": (record.key or b"").hex(),
        "value": (record.value or b"").hex(),
        "timestamp": record.timestamp,
        "headers": [(name, (text or b"").hex()) for name, text in record.headers],
    }


if __name__ == "__main__":
    _record()
