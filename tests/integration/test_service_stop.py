"""How `winnow run` stops, in the middle of a round: at once, with 0, and leaving nothing behind or undone."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from app.embedded.broker import Cluster
from app.model import Guarantee
from tests import independent
from tests.conftest import Topics
from tests.independent import Feeder, Written, by_partition, cleansed, line, produce, read, sequence, values
from tests.integration.service import Winnow, settings
from tests.integration.tasks import until

PARTITIONS = 3


def lag(broker: Cluster, group: str, topic: str) -> int:
    """Count what the group has not committed yet."""
    known = independent.committed(broker.bootstrap, group, topic)
    return sum(end - known.get(place, 0) for place, end in independent.ends(broker.bootstrap, topic).items())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_stop_exactly_once(broker: Cluster, topics: Topics, tmp_path: Path, number: int) -> None:
    """A signal while data flow, then one while idle: each time 0 within 10 s; the second run went on where the first stopped."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)

    with Feeder(broker.bootstrap, source, PARTITIONS, per_second=3_000) as feeder:
        with Winnow(config, tmp_path) as flowing:
            until(lambda: len(read(broker.bootstrap, sink)) > 3_000, what="a flow")
            codes = [flowing.stop(number)]
        taken = len(read(broker.bootstrap, sink))
        until(lambda: feeder.written.total() > taken + 1_000, what="more to do")
    with Winnow(config, tmp_path) as idle:
        until(lambda: lag(broker, sink, source) == 0, what="the end")
        codes.append(idle.stop(number))

    assert [0, 0] == codes
    assert sequence(feeder.written) == by_partition(read(broker.bootstrap, sink))
    records = [run.said("stopped")[0]["records"] for run in (flowing, idle)]
    assert feeder.written.total() == sum(records)
    assert [signal.Signals(number).name] == [run["cause"] for run in flowing.said("stopped")]
    assert [] == [*flowing.left_behind(), *idle.left_behind()]


def test_stop_at_least_once(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """In at-least-once mode a SIGTERM while data flow ends with 0 within 10 s as well, and nothing is lost."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    config = settings(
        broker.bootstrap,
        group=sink,
        sources=[source],
        sink=sink,
        dead=dead,
        delivery_guarantee=Guarantee.AT_LEAST_ONCE.value,
    )

    with Feeder(broker.bootstrap, source, PARTITIONS, per_second=3_000) as feeder, Winnow(config, tmp_path) as service:
        until(lambda: len(read(broker.bootstrap, sink)) > 3_000, what="a flow")
        code = service.stop()
    with Winnow(config, tmp_path, "--until-end") as rest:
        last = rest.code()

    assert [0, 0] == [code, last]
    found = by_partition(read(broker.bootstrap, sink))
    assert {p: set(lines) for p, lines in sequence(feeder.written).items()} == {p: set(v) for p, v in found.items()}


def test_stop_before_spark_is_up(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A SIGTERM while Spark is starting ends the service with 0 within 10 s, and a later run does the work."""
    source, sink, dead = topics("raw"), topics("clean"), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    produce(broker.bootstrap, source, [Written(line(0))])

    with Winnow(config, tmp_path) as early:
        until(lambda: early.java, what="Spark's JVM")
        code = early.stop()
    with Winnow(config, tmp_path, "--until-end") as late:
        last = late.code()

    assert [0, 0] == [code, last]
    assert [cleansed(0)] == values(read(broker.bootstrap, sink))
    assert [] == early.left_behind()
