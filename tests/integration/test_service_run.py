"""`winnow run` on a real Kafka and a real Spark: where it starts, what it skips, and which topics it discovers."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from app.embedded.broker import Cluster
from app.model import Guarantee
from app.runtime import Timings
from tests import independent
from tests.conftest import Topics
from tests.independent import Written, amiss, by_partition, cleansed, committed, line, lines, produce, read, values
from tests.integration.parsers import installed
from tests.integration.service import Winnow, settings
from tests.integration.status_page import metrics
from tests.support.waiting import PATIENCE, until

PATIENT = Timings().for_slow_tasks(20)
"""At least once, a task that is killed because it was slow would double lines."""


def write(broker: Cluster, topic: str, first: int, last: int, partitions: int = 1) -> None:
    """Write numbered valid lines to each partition of a topic."""
    produce(broker.bootstrap, topic, lines(first, last, *range(partitions)))


def run_to_end(config: dict[str, Any], folder: Path, **environment: str) -> tuple[int, Winnow]:
    """Run to the end. Return the exit code and the run, for its log."""
    with Winnow(config, folder, "--until-end", environment=environment) as service:
        return service.code(), service


@contextlib.contextmanager
def side_by_side(folder: Path, *configs: dict[str, Any]) -> Iterator[list[Winnow]]:
    """Run several services to their ends at once, because most of a start is waiting."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Winnow(config, folder, "--until-end", timings=PATIENT)) for config in configs]


def test_until_end(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """With either guarantee, `--until-end` processes all records and exits with 0; a second run only new ones."""
    one, two = topics("one", 2), topics("two")
    sinks = {guarantee: topics(guarantee.value, 2) for guarantee in Guarantee}
    deads = {guarantee: topics(f"dead-{guarantee.value}") for guarantee in Guarantee}
    configs = [
        settings(
            broker.bootstrap,
            group=sinks[guarantee],
            sources=[one, two],
            sink=sinks[guarantee],
            dead=deads[guarantee],
            delivery_guarantee=guarantee.value,
        )
        for guarantee in Guarantee
    ]
    write(broker, one, 0, 500, partitions=2)
    produce(broker.bootstrap, two, [Written(b"bad"), Written(None)])

    with side_by_side(tmp_path, *configs) as first:
        codes = [run.code() for run in first]
    write(broker, one, 500, 600, partitions=2)
    with side_by_side(tmp_path, *configs) as second:
        codes += [run.code() for run in second]

    assert [0, 0, 0, 0] == codes
    assert [1_002, 1_002, 200, 200] == [run.logged("stopped")[0]["records"] for run in (*first, *second)]
    for guarantee, sink in sinks.items():
        assert {} == amiss({0: 600, 1: 600}, read(broker.bootstrap, sink))
        assert [b"bad", None] == values(read(broker.bootstrap, deads[guarantee]))
        assert {(one, 0), (one, 1), (two, 0)} == committed(broker.bootstrap, sink, one, two).keys()


def test_starting_offsets(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """
    A group without an offset starts at the end, at a timestamp, or not at all, as starting.offsets configures.

    A partition that is added while the service is stopped starts at its beginning.
    """
    source, dead = topics("raw", 3), topics("dead")
    for n in range(10):  # partition 0 is around the time, 1 before it, 2 empty
        early, late = Written(line(n, 1), None, 1, 500 + n), Written(line(n), None, 0, 1_000 * n + 1)
        produce(broker.bootstrap, source, [early, late])
    sinks = {name: topics(name, 3) for name in ("latest", "timestamp", "error")}
    starts = {"latest": "latest", "timestamp": {"timestamp": 6_000}, "error": "error"}
    configs = [
        settings(
            broker.bootstrap, group=sinks[name], sources=[source], sink=sinks[name], dead=dead, starting_offsets=how
        )
        for name, how in starts.items()
    ]

    with side_by_side(tmp_path, *configs) as (latest, timestamp, error):
        codes = [latest.code(), timestamp.code(), error.code()]
    independent.grow(broker.bootstrap, source, 4)
    write(broker, source, 10, 12)
    produce(broker.bootstrap, source, [Written(line(n, 3), None, 3) for n in range(5)])
    later = run_to_end(configs[0], tmp_path)[0]

    assert [0, 0, 1, 0] == [*codes, later]
    added = {cleansed(n, 3) for n in range(5)}  # added while the service was stopped, so `latest` does not apply
    assert {cleansed(10), cleansed(11)} | added == set(values(read(broker.bootstrap, sinks["latest"])))
    assert 7 == len(read(broker.bootstrap, sinks["latest"]))
    assert [cleansed(n) for n in range(6, 10)] == values(read(broker.bootstrap, sinks["timestamp"]))
    assert {(source, 0): 10, (source, 1): 10, (source, 2): 0} == committed(broker.bootstrap, sinks["timestamp"], source)
    assert [] == read(broker.bootstrap, sinks["error"])
    blocked = error.logged("partition_blocked")
    assert {0, 1, 2} == {event["partition"] for event in blocked}
    assert all("starting.offsets is error" in event["error"] for event in blocked)


def test_lost_records(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """
    Records that were deleted unread block their partition or are skipped, as out.of.range configures. The log names
    their range.

    The same holds for an offset below the start of a partition and for one above its end.
    """
    source, dead = topics("raw", 3), topics("dead")
    write(broker, source, 0, 20, partitions=3)
    admin = independent.client(broker.bootstrap)
    for deleted in admin.delete_records([TopicPartition(source, 0, 15)]).values():
        deleted.result(PATIENCE)
    sinks = {policy: topics(policy, 3) for policy in ("error", "nearest", "earliest", "latest")}
    for group in sinks.values():
        independent.commit(broker.bootstrap, group, {(source, 0): 5, (source, 1): 10, (source, 2): 25})
    configs = [
        settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead, out_of_range=policy)
        for policy, sink in sinks.items()
    ]

    with side_by_side(tmp_path, *configs) as (error, nearest, earliest, latest):
        codes = [error.code(), nearest.code(), earliest.code(), latest.code()]

    assert [1, 0, 0, 0] == codes
    blocked = {event["partition"]: event["error"] for event in error.logged("partition_blocked")}
    assert {0, 2} == blocked.keys()
    assert "offsets 5 to 14 (at most 10) were deleted before they were read" in blocked[0]
    assert "the partition was truncated to 20, or the group's offset was set too high" in blocked[2]
    runs = (nearest, earliest, latest)
    skipped = [run.logged("offsets_skipped") for run in runs]
    assert [[(0, 5, 15)], [(0, 5, 15)], [(0, 5, 20)]] == [[_span(event) for event in events] for events in skipped]
    rewound = [run.logged("offsets_reread") for run in runs]
    assert [[(2, 20, 25)], [(2, 0, 25)], [(2, 20, 25)]] == [[_span(event) for event in events] for events in rewound]
    rest = {1: [cleansed(n, 1) for n in range(10, 20)]}
    first = {0: [cleansed(n) for n in range(15, 20)], 2: [cleansed(n, 2) for n in range(20)]}
    assert rest == by_partition(read(broker.bootstrap, sinks["error"]))
    assert {0: first[0]} | rest == by_partition(read(broker.bootstrap, sinks["nearest"]))
    assert first | rest == by_partition(read(broker.bootstrap, sinks["earliest"]))
    assert rest == by_partition(read(broker.bootstrap, sinks["latest"]))
    assert (5, 25) == tuple(committed(broker.bootstrap, sinks["error"], source)[source, n] for n in (0, 2))
    assert (20, 20) == tuple(committed(broker.bootstrap, sinks["latest"], source)[source, n] for n in (0, 2))


def _span(event: dict[str, Any]) -> tuple[int, int, int]:
    return event["partition"], event["start"], event["end"]


def test_recreated_topic(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A source topic that is recreated while the service runs is blocked and named. The other topic continues."""
    old, steady, sink, dead = topics("old"), topics("steady"), topics("clean"), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[old, steady], sink=sink, dead=dead, round_interval="5s")
    write(broker, old, 0, 5)
    with Winnow(config, tmp_path) as service:
        url = service.wait_for("status_page_up")["url"]
        offset = "kafka_consumergroup_group_offset", "0", old
        until(lambda: metrics(url).get(offset) == 5, "the driver has read the offset of the lines before the deletion")
        admin = independent.client(broker.bootstrap)
        admin.delete_topics([old])[old].result(PATIENCE)
        until(lambda: old not in admin.list_topics(timeout=PATIENCE).topics)
        broker.create_topic(old)
        blocked = service.wait_for("partition_blocked")
        write(broker, old, 90, 99)
        write(broker, steady, 5, 7)
        until(lambda: len(read(broker.bootstrap, sink)) >= 7, "the other topic's lines")
        code = service.stop()

    assert 0 == code
    assert old == blocked["topic"]
    assert "deleted and recreated" in blocked["error"] or "vanished" in blocked["error"]
    assert [cleansed(n) for n in range(7)] == values(read(broker.bootstrap, sink))


def test_new_topics_and_partitions(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A new topic that matches the pattern and an added partition lose no records."""
    prefix = uuid.uuid4().hex
    broker.create_topic(f"{prefix}.a")
    sink, dead = topics("clean", 2), topics("dead")
    config = settings(broker.bootstrap, group=prefix, sources=[], sink=sink, dead=dead)
    # New partitions are read from their beginning. starting.offsets applies only to those that exist at the start.
    config |= {"source": {"topics.pattern": f"{prefix}\\..*"}, "starting.offsets": "latest"}

    with Winnow(config, tmp_path) as service:
        service.wait_for("progress")
        write(broker, f"{prefix}.a", 0, 5)
        broker.create_topic(f"{prefix}.b")
        write(broker, f"{prefix}.b", 100, 105)
        independent.grow(broker.bootstrap, f"{prefix}.a", 2)
        write(broker, f"{prefix}.a", 5, 10, partitions=2)
        until(lambda: len(read(broker.bootstrap, sink)) >= 20, "20 lines")
        code = service.stop()

    assert 0 == code
    found = by_partition(read(broker.bootstrap, sink))
    old = {cleansed(n) for n in (*range(10), *range(100, 105))}
    assert (15, old) == (len(found[0]), set(found[0]))
    assert [cleansed(n, 1) for n in range(5, 10)] == found[1]


def test_missing_topics(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Missing topics end the start with 3 and one line for each, also in the log."""
    there = {"source": topics("raw", 2), "sink": topics("clean"), "dead": topics("dead")}
    lacking = [("source",), ("sink", "dead"), ("source", "sink", "dead")]
    configs = []
    for roles in lacking:
        source, sink, dead = (there | {role: f"no-{role}" for role in roles}).values()
        configs.append(settings(broker.bootstrap, group=there["source"], sources=[source], sink=sink, dead=dead))

    with side_by_side(tmp_path, *configs) as runs:
        codes = [run.code() for run in runs]

    assert [3, 3, 3] == codes
    for roles, run in zip(lacking, runs, strict=True):
        partitions = 8 if "source" in roles else 2
        said = [
            f"topic 'no-{role}' does not exist: kafka-topics --bootstrap-server {broker.bootstrap} --create --topic no-{role} "
            f"--partitions {8 if role == 'source' else partitions}; or correct the configuration"
            for role in roles
        ]
        assert "\n".join(["winnow: " + said[0], *said[1:]]) == "\n".join(text for text in run.noise if text.strip())
        assert "\n".join(said) == run.wait_for("stopped")["cause"]
        assert run.wait_for("started")["sources"]


def test_foreign_member(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A foreign consumer in the group ends the service with 3 and is named, at the start or when it joins later."""
    source, sink, dead = topics("raw"), topics("clean"), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    with Winnow(config, tmp_path) as joined_later:
        joined_later.wait_for("progress")
        with foreigner(broker, sink, source):
            codes = [joined_later.code()]
            with Winnow(config, tmp_path) as there_before:
                codes.append(there_before.code())

    assert [3, 3] == codes
    for run in (joined_later, there_before):
        (error,) = [text for text in run.noise if text.startswith("winnow:")]
        assert "somebodys-tool" in error
        assert sink in error


@contextlib.contextmanager
def foreigner(broker: Cluster, group: str, topic: str) -> Iterator[None]:
    """Join a group as a live member."""
    from confluent_kafka import Consumer

    # Longer sessions than Kafka's usual ones, because it must stay a member without polling.
    lasting = {"session.timeout.ms": 900_000, "max.poll.interval.ms": 3_600_000}
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "somebodys-tool", **lasting}
    )
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "the foreign consumer to join")
    yield
    consumer.close()


PARSER = '''
from parsers.idc_access_log import IdcAccessLog


class Moody(IdcAccessLog):
    """The built-in parser, but it fails on one line."""

    def parse(self, lines):
        if any(b"/0/13<" in line for line in lines.to_pylist()):
            raise RuntimeError("thirteen")
        return super().parse(lines)
'''


def test_a_parser_that_raises(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A record on which a parser raises becomes a dead letter `parser_error`. The others are cleansed."""
    source, sink, dead = topics("raw"), topics("clean"), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead, parser={"name": "moody"})
    write(broker, source, 0, 100)

    code, _ = run_to_end(config, tmp_path, **installed(tmp_path, "moody", "Moody", PARSER))

    assert 0 == code
    assert [cleansed(n) for n in range(100) if n != 13] == values(read(broker.bootstrap, sink))
    (dead_letter,) = read(broker.bootstrap, dead)
    assert (line(13), "parser_error") == (dead_letter.value, dead_letter.error_headers["exception.class.name"])
    assert "RuntimeError: thirteen" in dead_letter.error_headers["exception.message"]
