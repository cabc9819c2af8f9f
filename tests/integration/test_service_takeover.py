"""A later generation takes over from a running service on a real Kafka: nothing is lost, duplicated or left open."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from app.embedded.broker import Cluster
from app.runtime import Runtime, Timings
from tests.conftest import Topics
from tests.independent import Feeder, amiss, by_partition, read, sequence
from tests.integration.in_process import Running, services
from tests.integration.service import Winnow, settings
from tests.support.waiting import until

PARTITIONS = 4
LEAVES = "handing_over"
STANDS_BY = "standing_by"
PATIENT = Runtime(timings=Timings().for_slow_tasks(20))
"""A task that is given up because it was slow goes on in its thread, and would double lines."""


def test_a_later_generation_takes_over(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """
    The earlier service exits with 0 and names the later, which continues. One partition has no traffic.

    After a SIGTERM the earlier one works until the hand-over. Restarted, as by Kubernetes, it takes nothing back but
    stands by.
    """
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    config |= {"handover.timeout": "10m"}
    newer = config | {"generation": 1}

    with Feeder(broker.bootstrap, source, PARTITIONS - 1, 200) as feeder, Winnow(config, tmp_path) as earlier:
        until(lambda: len(by_partition(read(broker.bootstrap, sink))) == PARTITIONS - 1, "a flow")
        earlier.send(signal.SIGTERM)
        earlier.wait_for(LEAVES)
        there = len(read(broker.bootstrap, sink))
        until(lambda: len(read(broker.bootstrap, sink)) > there + 100, "a flow from a service that leaves")
        with Winnow(newer, tmp_path) as later:
            assert 0 == earlier.code()
            before = len(read(broker.bootstrap, sink))
            until(lambda: len(read(broker.bootstrap, sink)) > before + 100, "a flow from the later service")
            with Winnow(config, tmp_path) as again:
                again.wait_for(STANDS_BY)
                until(lambda: len(read(broker.bootstrap, sink)) > before + 1_000, "more of it")
                assert 0 == again.stop(signal.SIGTERM)
            feeder.stop()
            until(lambda: len(read(broker.bootstrap, sink)) >= feeder.written.total(), "the end")
            later.send(signal.SIGTERM)
            later.wait_for(LEAVES)
            assert 0 == later.stop()  # a second one ends it at once

    assert {} == amiss(feeder.written, read(broker.bootstrap, sink))
    (words,) = earlier.logged("stopped")
    assert words["cause"].startswith("taken over by the service of generation 1 on ")
    assert f"and writes to {sink}" in words["cause"]


def test_a_service_that_stands_by_leaves_the_work_to_its_like(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A service with --stand-by waits for another of its generation, which it would otherwise end."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)

    with Feeder(broker.bootstrap, source, PARTITIONS - 1, 200) as feeder, Winnow(config, tmp_path) as works:
        until(lambda: len(by_partition(read(broker.bootstrap, sink))) == PARTITIONS - 1, "a flow")
        with Winnow(config, tmp_path, "--stand-by") as stands_by:
            stands_by.wait_for(STANDS_BY)
            before = len(read(broker.bootstrap, sink))
            until(lambda: len(read(broker.bootstrap, sink)) > before + 1_000, "a flow beside it")
            assert 0 == stands_by.stop(signal.SIGTERM)
        feeder.stop()
        until(lambda: len(read(broker.bootstrap, sink)) >= feeder.written.total(), "the end")
        assert 0 == works.stop(signal.SIGTERM)

    assert {} == amiss(feeder.written, read(broker.bootstrap, sink))
    assert not works.logged("partitions_fenced")


@pytest.mark.parametrize(
    ("before", "after"),
    [("at-least-once", "at-least-once"), ("exactly-once", "at-least-once"), ("at-least-once", "exactly-once")],
)
def test_a_take_over_without_transactions_is_as_clean_as_a_restart(
    broker: Cluster, topics: Topics, before: str, after: str
) -> None:
    """At least once, lines that the earlier service wrote after its last save repeat once."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    earlier = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    earlier |= {"delivery.guarantee": before, "http": {"enabled": False}}
    later = earlier | {"delivery.guarantee": after, "generation": 1}

    with (
        Feeder(broker.bootstrap, source, PARTITIONS, 400) as feeder,
        services(earlier, runtime=PATIENT) as (told, (end_earlier,)),
    ):
        until(lambda: len(by_partition(read(broker.bootstrap, sink))) == PARTITIONS, "a flow")
        with Running(later, PATIENT) as end_later:
            told.wait_for("stopped")
            assert 0 == end_earlier()
            there = len(read(broker.bootstrap, sink))
            until(lambda: len(read(broker.bootstrap, sink)) > there + 1_000, "a flow from the later service")
            feeder.stop()
            wanted = {each for lines in sequence(feeder.written).values() for each in lines}
            until(lambda: wanted <= {each.value for each in read(broker.bootstrap, sink)}, "the end")
            assert 0 == end_later()

    found = by_partition(read(broker.bootstrap, sink))
    doubled = {partition: came_again(found[partition], lines) for partition, lines in sequence(feeder.written).items()}
    print(f"{before}, then {after}: lines of each partition that came twice: {doubled}")  # for pytest -rP
    assert "taken over by the service of generation 1" in told.all("stopped")[0]["cause"]
    assert not told.all("takeover_abandoned")
    assert (before, after) != ("exactly-once", "at-least-once") or not any(doubled.values())


def came_again(found: Sequence[bytes | None], written: Sequence[bytes]) -> int:
    """
    Return how many lines of a partition arrived twice. None may arrive more often.

    They are contiguous, or in two runs if the earlier service saved once more between its last check and its fence.
    """
    times = Counter(found)
    again = [at for at, line in enumerate(written) if times[line] == 2]
    assert times.keys() == set(written)
    assert times.total() == len(written) + len(again)
    assert sum(later - one > 1 for one, later in pairwise(again)) <= 1, again
    return len(again)
