"""`winnow run` stops in the middle of a round at once, with 0, no process left and no record lost."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Any, NamedTuple

from app.embedded.broker import Cluster
from app.model import Guarantee
from app.runtime import Timings
from tests import independent
from tests.conftest import Topics
from tests.independent import Feeder, Written, by_partition, cleansed, line, produce, read, sequence, values
from tests.integration.service import Winnow, WinnowOnSpark, settings
from tests.support.waiting import until

PARTITIONS, RATE = 3, 600
PATIENT = Timings(control_fence=60.0)
"""Tasks that were killed because they were slow to stop report nothing, and Kafka may be too slow to count for them."""


def lag(broker: Cluster, group: str, topic: str) -> int:
    """Return the lag of the group."""
    known = independent.committed(broker.bootstrap, group, topic)
    return sum(end - known.get(place, 0) for place, end in independent.ends(broker.bootstrap, topic).items())


class Flow(NamedTuple):
    """A stop under load: a signal, a guarantee and its own topics."""

    guarantee: Guarantee
    number: int
    source: str
    sink: str
    config: dict[str, Any]


def test_stop_while_data_flow(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """
    A signal stops the service with 0, under load and while idle. A second run continues where the first stopped.

    SIGTERM and SIGINT exactly once, and SIGTERM at least once, run side by side, because most of a start is waiting.
    """
    exactly_once, at_least_once = Guarantee
    cases = ((exactly_once, signal.SIGTERM), (exactly_once, signal.SIGINT), (at_least_once, signal.SIGTERM))
    flows = [make_flow(broker, topics, guarantee, number) for guarantee, number in cases]

    with contextlib.ExitStack() as stack:
        feeders = [stack.enter_context(Feeder(broker.bootstrap, flow.source, PARTITIONS, RATE)) for flow in flows]
        first = [stack.enter_context(Winnow(flow.config, tmp_path, timings=PATIENT)) for flow in flows]
        until(lambda: all(len(read(broker.bootstrap, flow.sink)) > 600 for flow in flows), "a flow")
        codes = [service.stop(flow.number) for service, flow in zip(first, flows, strict=True)]
        left = [each for service in first for each in service.leftovers()]
        taken = [len(read(broker.bootstrap, flow.sink)) for flow in flows]
        for feeder, so_far in zip(feeders, taken, strict=True):
            until(lambda: feeder.written.total() > so_far + 300, "more to do")  # noqa: B023  # called here
    with contextlib.ExitStack() as stack:
        second = [stack.enter_context(Winnow(flow.config, tmp_path, timings=PATIENT)) for flow in flows]
        until(lambda: all(lag(broker, flow.sink, flow.source) == 0 for flow in flows), "the end")
        codes += [service.stop(flow.number) for service, flow in zip(second, flows, strict=True)]
        left += [each for service in second for each in service.leftovers()]

    assert [0] * 6 == codes
    assert [] == left
    for flow, feeder, *runs in zip(flows, feeders, first, second, strict=True):
        expected, found = sequence(feeder.written), by_partition(read(broker.bootstrap, flow.sink))
        if flow.guarantee is exactly_once:
            assert expected == found
            assert feeder.written.total() == sum(run.logged("stopped")[0]["records"] for run in runs)
        else:
            assert {p: set(lines) for p, lines in expected.items()} == {p: set(lines) for p, lines in found.items()}
        assert [signal.Signals(flow.number).name] == [run["cause"] for run in runs[0].logged("stopped")]


def make_flow(broker: Cluster, topics: Topics, guarantee: Guarantee, number: int) -> Flow:
    """Create the topics of a case."""
    source, sink, dead = topics("raw", PARTITIONS), topics("clean", PARTITIONS), topics("dead")
    where = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    return Flow(guarantee, number, source, sink, where | {"delivery.guarantee": guarantee.value})


def test_stop_before_spark_is_up(broker: Cluster, topics: Topics, tmp_path: Path) -> None:
    """A SIGTERM while Spark starts ends the service with 0 and leaves no process, and a later run does the work."""
    source, sink, dead = topics("raw"), topics("clean"), topics("dead")
    config = settings(broker.bootstrap, group=sink, sources=[source], sink=sink, dead=dead)
    produce(broker.bootstrap, source, [Written(line(0))])

    with WinnowOnSpark(config, tmp_path) as early:
        until(lambda: early.java, "Spark's JVM")
        code, left = early.stop(), early.leftovers()
    with Winnow(config, tmp_path, "--until-end") as late:
        last = late.code()

    assert [0, 0] == [code, last]
    assert [cleansed(0)] == values(read(broker.bootstrap, sink))
    assert [] == left
