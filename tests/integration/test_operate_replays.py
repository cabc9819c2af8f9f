"""`winnow dlq replay` on a real Kafka, with dead letters written by the service."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli import main
from app.embedded.broker import Cluster
from app.errors import Fenced
from app.kafka.admin import AdminConnection
from app.kafka.dead_letter_replay import KafkaReplays
from app.kafka.topics import KafkaTopics
from app.model import Partition
from tests.conftest import Topics
from tests.fakes import make_task_config
from tests.independent import Record, Written, commit, ends, produce, read
from tests.integration.in_process import run
from tests.integration.service import settings
from tests.integration.tasks import alter
from tests.support.waiting import PATIENCE, until

BEGAN = 1_760_000_000_000
PAIRS = {"name": "delimited", "fields": ["a", "b"], "separator": ",", "output": "{b}|{a}"}
"""A parser that accepts `1,x`, which the default one rejects."""


@dataclass
class RejectingService:
    """A service whose parser rejects what a replay accepts, and its topics."""

    bootstrap: str
    source: str
    sink: str
    dead: str
    folder: Path

    def config(self, **more: Any) -> dict[str, Any]:
        return settings(self.bootstrap, group=self.sink, sources=[self.source], sink=self.sink, dead=self.dead, **more)

    def file(self, **more: Any) -> Path:
        file = self.folder / f"{len(list(self.folder.iterdir()))}.yaml"
        file.write_text(json.dumps(self.config(**more)))
        return file

    def serve(self, records: list[Written]) -> None:
        """Run the service so that records become dead letters."""
        produce(self.bootstrap, self.source, records)
        assert 0 == run(self.config())[0]

    def replay(self, *arguments: str, parser: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        file = str(self.file(parser=parser or PAIRS))
        done = CliRunner().invoke(main, ["dlq", "replay", "-c", file, "--json", *arguments])
        return done.exit_code, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}

    def process(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "app.cli", "dlq", "replay", "-c", str(self.file(parser=PAIRS)), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def lines(self, topic: str = "") -> Counter[bytes | None]:
        return Counter(each.value for each in read(self.bootstrap, topic or self.sink))

    def end(self) -> int:
        """Return how many offsets of the sink are used, by lines and markers."""
        return sum(ends(self.bootstrap, self.sink).values())

    def letters(self, topic: str = "") -> list[Record]:
        return read(self.bootstrap, topic or self.dead)


def make(cluster: Cluster, topics: Topics, folder: Path) -> RejectingService:
    return RejectingService(cluster.bootstrap, topics("raw", 3), topics("clean", 2), topics("dead", 2), folder)


def pair(number: int, partition: int = 0) -> Written:
    return Written(b"%d,x" % number, b"k%d" % number, partition, BEGAN + number, [("own", b"1")])


def headers(record: Record) -> dict[str, bytes | None]:
    return dict(record.headers)


def test_a_replay_and_more_of_them(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A replayed line arrives once, in its source's partition. Repeated failures are counted and finally parked."""
    service = make(broker, topics, tmp_path)
    service.serve([pair(n, n % 3) for n in range(9)] + [Written(b"rubbish", b"k", 1, BEGAN + 100)])

    code, foreseen = service.replay("--dry-run")
    untouched = service.lines(), len(service.letters())
    first, found = service.replay("--attempts", "2")
    lines = read(service.bootstrap, service.sink)
    again = [service.replay("--attempts", "2") for _ in range(3)]
    (parked,) = service.letters(f"{service.dead}.parked")

    assert (1, {"no_marker": 10}, {"field_count": 1}, 9) == (
        code,
        foreseen["then"],
        foreseen["now"],
        foreseen["cleansed"],
    )
    assert (Counter(), 10) == untouched
    assert (1, 9, 1, 0) == (first, found["cleansed"], found["failed_again"], found["parked"])
    assert {(n % 3 % 2, b"x|%d" % n, b"k%d" % n, BEGAN + n) for n in range(9)} == {
        (each.partition, each.value, each.key, each.timestamp) for each in lines
    }
    assert {b"%s-%d@%d" % (service.source.encode(), n % 3, n // 3) for n in range(9)} == {
        headers(each)["winnow.source"] for each in lines
    }
    assert "own" not in headers(lines[0])
    assert [(1, 1, 1), (0, 0, 0), (0, 0, 0)] == [(code, out["replayed"], out["parked"]) for code, out in again]
    assert (b"rubbish", b"2", "field_count", "3", BEGAN + 100) == (
        parked.value,
        headers(parked)["winnow.replays"],
        parked.error_headers["exception.class.name"],
        parked.error_headers["offset"],
        parked.timestamp,
    )
    assert 11 == len(service.letters())
    assert Counter({b"x|%d" % n: 1 for n in range(9)}) == service.lines()


def test_choices_do_not_hide_what_they_leave(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Dead letters left out by reason, time, limit or target remain for another replay."""
    service, other = make(broker, topics, tmp_path), topics("other")
    service.serve([pair(n, n % 3) for n in range(12)] + [Written(b"", None, 0, BEGAN + 50)])

    limited = service.replay("--limit", "2")[1]
    late = service.replay("--since", "2025-10-09T08:53:20.010Z", "--reason", "no_marker")[1]
    elsewhere = service.replay("--into", other)[1]
    rest = service.replay("--until", "2025-10-09T08:53:20.012Z")[1]

    assert (2, 2) == (limited["replayed"], limited["cleansed"])
    assert 2 == late["cleansed"]
    assert (12, 1) == (elsewhere["cleansed"], elsewhere["failed_again"])
    assert 8 == rest["cleansed"]
    assert Counter({b"x|%d" % n: 1 for n in range(12)}) == service.lines() == service.lines(other)


def test_a_replay_that_is_killed(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A killed replay resumes where it was, unhindered by its open transaction."""
    service = make(broker, topics, tmp_path)
    service.serve([pair(n, n % 3) for n in range(3_000)])  # at that rate far from its end, however late it is killed

    for _ in range(2):
        before = service.end()
        with service.process("--rate", "10") as process:
            until(lambda before=before: service.end() > before + 20, "lines")  # type: ignore[misc]  # mypy's own
            process.kill()
    code, found = service.replay()

    assert 0 == code
    assert 0 < found["cleansed"] < 2_990
    assert Counter({b"x|%d" % n: 1 for n in range(3_000)}) == service.lines()


def test_two_replays_at_once(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """The later of two replays continues; the earlier one ends and says so. No line arrives twice."""
    service = make(broker, topics, tmp_path)
    service.serve([pair(n, n % 3) for n in range(1_000)])

    with service.process("--rate", "2") as earlier:  # far from its end, however slowly the later one starts
        until(lambda: service.end() > 5, "lines")
        code, found = service.replay()
        _, said = earlier.communicate(timeout=PATIENCE)

    assert 0 == code, found
    assert 3 == earlier.returncode, said
    assert "another replay" in said
    assert Counter({b"x|%d" % n: 1 for n in range(1_000)}) == service.lines()


def test_an_earlier_replay_that_replaces_its_producer(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A slow commit replaces the producer. If another replay has worked meanwhile, the earlier one stops."""
    service = make(broker, topics, tmp_path)
    tasks = KafkaTopics(AdminConnection({"bootstrap.servers": service.bootstrap}))
    config = make_task_config(
        group=f"{service.sink}.dlq-replay",
        kafka={"bootstrap.servers": service.bootstrap},
        sink=tasks.destination(service.sink),
        dead_letters=tasks.destination(service.dead),
    )
    produce(service.bootstrap, service.dead, [pair(n) for n in range(9)])
    place = Partition(service.dead, 0)
    with closing(KafkaReplays(config)) as kafka, kafka.open([place], []) as ((_, earlier, _),):
        earlier.commit([], 3, "here")
        earlier._replace()  # no other replay exists
        earlier.commit([], 4, "here")
        with kafka.open([place], []) as ((_, later, position),):
            later.commit([], 6, "there")

            with pytest.raises(Fenced, match="another replay has moved this replay's position"):
                earlier._replace()

    assert (4, "here") == (position and position.offset, position and position.metadata)


def test_dead_letters_that_bear_the_time_of_writing(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Each record becomes one line with its own timestamp, however many dead letters it has."""
    service = make(broker, topics, tmp_path)
    alter(service.bootstrap, service.dead, message_timestamp_type="LogAppendTime")
    service.serve([pair(n) for n in range(4)])
    commit(service.bootstrap, service.sink, {(service.source, 0): 0})
    service.serve([])

    code, found = service.replay("--rate", "4")

    assert (0, 4, 4) == (code, found["cleansed"], found["handled_before"])
    assert {(b"x|%d" % n, BEGAN + n) for n in range(4)} == {
        (each.value, each.timestamp) for each in read(service.bootstrap, service.sink)
    }
    assert Counter({b"x|%d" % n: 1 for n in range(4)}) == service.lines()
    (topic_id,) = {headers(each)["__connect.errors.topic.id"] for each in service.letters()}
    topic = KafkaTopics(AdminConnection({"bootstrap.servers": service.bootstrap})).source_topics([service.source], None)
    assert topic[service.source].id.encode() == topic_id
