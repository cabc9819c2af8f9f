"""`winnow replay` on a real Kafka, without touching the service's offsets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition

from app.cli import main
from app.embedded.broker import Cluster
from tests.conftest import Topics
from tests.independent import Written, cleansed, client, committed, ends, line, produce, read, values
from tests.integration.in_process import run
from tests.integration.service import settings
from tests.integration.tasks import slow_down
from tests.support.configuration import file_of
from tests.support.waiting import PATIENCE, until

BEGAN = 1_760_000_000_000


def test_a_part_of_the_source_once_more(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A replay writes the lines of a period once and in order, and leaves the service's group alone."""
    source, sink, dead, into = topics("raw", 2), topics("clean"), topics("dead"), topics("into", 2)
    broker.create_topic(f"{into}.dlq", 1)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    file = file_of(config, tmp_path)
    produce(broker.bootstrap, source, [Written(line(n) if n % 10 else b"", None, n % 2, BEGAN + n) for n in range(100)])
    assert 0 == run(config)[0]
    before = committed(broker.bootstrap, sink, source)

    def replay(*arguments: str, target: str = into) -> tuple[int, dict[str, Any]]:
        window = ["--from", str(BEGAN + 20), "--to", str(BEGAN + 60), "--into", target]
        done = CliRunner().invoke(main, ["replay", "-c", str(file), "--json", *window, *arguments])
        return done.exit_code, json.loads(done.stdout) if done.stdout else {"stderr": done.stderr}

    foreseen, first, again = replay("--dry-run"), replay(), replay()
    lines = read(broker.bootstrap, into)

    assert (0, [20, 20]) == (foreseen[0], [each["end"] - each["begin"] for each in foreseen[1]["partitions"]])
    assert (0, 40, 36) == (first[0], *(sum(each[key] for each in first[1]["partitions"]) for key in ("in", "out")))
    assert (0, 0) == (again[0], sum(each["in"] for each in again[1]["partitions"]))
    for number in range(2):
        expected = [cleansed(n) for n in range(20, 60) if n % 2 == number and n % 10]
        assert expected == [each.value for each in lines if each.partition == number]
    assert 4 == len(read(broker.bootstrap, f"{into}.dlq"))
    assert before == committed(broker.bootstrap, sink, source)
    assert not any(each["expired"] for each in first[1]["partitions"])
    assert 2 == replay(target=sink)[0]
    assert 3 == replay(target="nowhere")[0]


def test_what_cannot_be_read_is_told(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Retention may have deleted a part of the range. What an open transaction hides ends the replay with 1 until then."""
    source, sink, dead, into = topics("raw"), topics("clean"), topics("dead"), topics("into")
    broker.create_topic(f"{into}.dlq", 1)
    file = file_of(settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead), tmp_path)
    produce(broker.bootstrap, source, [Written(line(n), None, 0, BEGAN + n) for n in range(10)])
    for deleted in client(broker.bootstrap).delete_records([TopicPartition(source, 0, 4)]).values():
        deleted.result(PATIENCE)
    own: dict[str, str | int] = {"transactional.id": source, "transaction.timeout.ms": 600_000}
    upstream = Producer({"bootstrap.servers": broker.bootstrap, **own})
    upstream.init_transactions(PATIENCE)
    upstream.begin_transaction()
    upstream.produce(source, line(10), timestamp=BEGAN + 10)
    upstream.flush(PATIENCE)
    window = ["--from", str(BEGAN), "--to", str(BEGAN + 100), "--into", into]

    early = CliRunner().invoke(main, ["replay", "-c", str(file), *window])
    upstream.commit_transaction(PATIENCE)
    done = CliRunner().invoke(main, ["replay", "-c", str(file), *window])

    assert (1, 0) == (early.exit_code, done.exit_code), early.output + done.output
    assert "1 offsets wait behind an open transaction" in early.stdout
    assert "retention may have deleted earlier records of the range in 1 of 1 partitions" in done.stdout
    assert [cleansed(n) for n in range(4, 11)] == values(read(broker.bootstrap, into))


def test_old_records_for_topics_that_take_none(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """They are dead letters before Kafka refuses them one by one, and a reject keeps its reason, as in the service."""
    source, sink, dead = topics("raw"), topics("clean"), topics("dead")
    limit = {"message.timestamp.before.max.ms": "86400000"}
    into = topics("into", 1, limit)
    rejects = broker.create_topic(f"{into}.dlq", 1, limit)
    file = file_of(settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead), tmp_path)
    produce(broker.bootstrap, source, [Written(line(0), None, 0, BEGAN), Written(b"", None, 0, BEGAN + 1)])

    done = CliRunner().invoke(
        main, ["replay", "-c", str(file), "--from", str(BEGAN), "--to", str(BEGAN + 9), "--into", into]
    )

    assert 0 == done.exit_code, done.output
    assert [] == read(broker.bootstrap, into)
    assert ["refused", "empty"] == [
        each.error_headers["exception.class.name"] for each in read(broker.bootstrap, rejects)
    ]


def test_a_replay_that_is_killed(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """The same command resumes a killed replay; nothing is lost or duplicated."""
    source, sink, dead, into = topics("raw", 2), topics("clean"), topics("dead"), topics("into", 2)
    broker.create_topic(f"{into}.dlq", 1)
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    file = file_of({**config, "kafka": {**config["kafka"], "client.id": into}}, tmp_path)
    slow_down(broker.bootstrap, into, 1_000)  # far from its end, however late it is killed
    total = 200_000
    produce(broker.bootstrap, source, (Written(line(n), None, n % 2, BEGAN + n) for n in range(total)))
    window = ["--from", str(BEGAN), "--to", str(BEGAN + total), "--into", into]

    with subprocess.Popen([sys.executable, "-m", "app.cli", "replay", "-c", str(file), *window]) as process:
        until(lambda: sum(ends(broker.bootstrap, into).values()) > 0, "lines")
        process.kill()
    file_of(config, tmp_path)  # at full speed
    done = CliRunner().invoke(main, ["replay", "-c", str(file), "--json", *window])

    assert (-signal.SIGKILL, 0) == (process.returncode, done.exit_code), done.stderr
    assert sum(each["in"] for each in json.loads(done.stdout)["partitions"]) > 0
    lines = Counter(each.value for each in read(broker.bootstrap, into))
    assert Counter(cleansed(n) for n in range(total)) == lines
