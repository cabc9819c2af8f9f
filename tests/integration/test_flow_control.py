"""How fast a task takes records from a real Kafka: limits that a person sets, and a sink that takes them slowly."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace

import psutil
import pytest

from app.embedded.broker import Cluster
from app.embedded.jars import fetch_jars, find_java
from app.kafka.backend import Backend
from app.model import Outcome, Partition, Receipt
from app.offsets.metadata import OffsetMetadata
from app.rates import BreakerLimit, Rates
from tests.conftest import QUICK_JAVA, Topics
from tests.independent import Written, by_partition, cleansed, line, produce, values
from tests.integration.tasks import BOTH_BACKENDS, Stage, make_stage, noise

RATE, SECONDS, PARTITIONS = 700, 60, 4


def fill(stage: Stage, records: int) -> None:
    """Write so many lines to each source partition."""
    partitions = stage.sources[stage.source]
    written = (Written(line(n, each), partition=each) for n in range(records) for each in range(partitions))
    produce(stage.bootstrap, stage.source, written)


def check_prefix(stage: Stage, receipts: Mapping[Partition, Receipt]) -> None:
    """Require that exactly what the receipts count is in the sink, in order."""
    found = by_partition(stage.cleansed())
    for partition, receipt in receipts.items():
        assert receipt.balances
        assert [cleansed(n, partition.number) for n in range(receipt.records)] == found[partition.number]


def test_a_rate_holds_for_a_minute(broker: Cluster, topics: Topics) -> None:
    """Each partition is read at its rate, within 5 % over 60 s, whatever waits; and nothing is lost or doubled by it."""
    stage = make_stage(broker.bootstrap, topics, source=PARTITIONS, sink=PARTITIONS, rates=Rates(RATE))
    fill(stage, 2 * RATE * SECONDS)

    receipts = stage.run(seconds=SECONDS)

    assert [pytest.approx(RATE, rel=0.05)] * PARTITIONS == [each.records / SECONDS for each in receipts.values()]
    assert {Outcome.DONE} == {each.outcome for each in receipts.values()}
    check_prefix(stage, receipts)


@BOTH_BACKENDS
def test_the_first_backlog_is_read_slowly(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """What waits when the group begins is read at `initial.rate`; the offset remembers where that ends."""
    stage = make_stage(broker.bootstrap, topics, rates=Rates(initial=RATE))
    stage.backend = backend
    fill(stage, 4 * RATE)
    (planned,) = stage.ranges(1 << 40)

    (receipt,) = stage.run(replace(planned, backlog=4 * RATE), seconds=2).values()

    assert 2 * RATE == pytest.approx(receipt.records, rel=0.8)
    assert 4 * RATE == OffsetMetadata.parse(receipt.metadata).backlog
    fill(stage, 20 * RATE)  # these came later

    (receipt,) = stage.run(seconds=30).values()

    assert Outcome.DONE is receipt.outcome
    assert stage.lag() == {(stage.source, 0): 0}


@BOTH_BACKENDS
def test_too_many_dead_letters(broker: Cluster, topics: Topics, backend: Backend) -> None:
    """Their partition is blocked, the other one goes on; sink, dead letters and offset stop at the same record."""
    limit = BreakerLimit(0.5, minimum=100, seconds=60)
    stage = make_stage(broker.bootstrap, topics, source=2, sink=2, breaker=limit)
    stage.backend = backend
    fill(stage, 1_000)
    produce(broker.bootstrap, stage.source, [Written(b"rubbish")] * 9_000)

    receipts = stage.run()

    blocked, other = (receipts[Partition(stage.source, number)] for number in (0, 1))
    assert (Outcome.BLOCKED, True) == (blocked.outcome, blocked.tripped)
    assert (Outcome.DONE, 1_000) == (other.outcome, other.out)
    assert stage.committed()[stage.source, 0] == blocked.end < 10_000
    assert (blocked.out, blocked.dead.get("no_marker", 0)) == (
        len(values(stage.cleansed(), 0)),
        len(stage.dead_letters()),
    )
    stage.changes["breaker"] = None  # a person takes the dead letters

    (receipt,) = stage.run(*(each for each in stage.ranges() if each.partition.number == 0)).values()

    assert (Outcome.DONE, 10_000) == (receipt.outcome, receipt.end)
    assert (1_000, 9_000) == (len(values(stage.cleansed(), 0)), len(stage.dead_letters()))


def slow_down(bootstrap: str, client: str, per_second: int) -> None:
    """Let a broker take so many bytes per second of the producers with a client.id, by a quota."""
    command = [find_java(), "-Xmx128m", *QUICK_JAVA, "-cp", f"{fetch_jars()}/*", "kafka.admin.ConfigCommand"]
    change = ["--alter", "--add-config", f"producer_byte_rate={per_second}"]
    whom = ["--entity-type", "clients", "--entity-name", client]
    arguments = ["--bootstrap-server", bootstrap, *change, *whom]
    subprocess.run([*command, *arguments], capture_output=True, check=True, timeout=120)


def test_a_slow_sink(broker: Cluster, topics: Topics) -> None:
    """Memory does not grow, no transaction outlives its timeout (its lane would be fenced), and all arrives once."""
    stage = make_stage(broker.bootstrap, topics, source=2, sink=2, transaction_seconds=20.0)
    stage.changes["kafka"] = {"bootstrap.servers": broker.bootstrap, "client.id": stage.group}
    fill(stage, 100)
    stage.run()  # what is loaded once does not count below
    fill(stage, 60_000)
    slow_down(broker.bootstrap, stage.group, 60_000)
    process = psutil.Process()
    before, most = process.memory_info().rss, 0

    with stage.running(*stage.ranges(1 << 40)):
        deadline = time.monotonic() + 85
        while any(stage.lag().values()) and time.monotonic() < deadline:
            most = max(most, process.memory_info().rss)
            time.sleep(0.2)

    found = by_partition(stage.cleansed())
    written = [*range(100), *range(60_000)]
    assert [[cleansed(n, each) for n in written] for each in (0, 1)] == [found[0], found[1]]
    assert most - before < 200 << 20


def test_a_worker_keeps_its_memory(broker: Cluster, topics: Topics) -> None:
    """However many partitions wait for a slow sink, with however much: the backlog stays in Kafka, and is pulled."""
    partitions, records, size = 48, 300, 50_000
    stage = make_stage(broker.bootstrap, topics, source=partitions, sink=partitions)
    stage.changes["kafka"] = {"bootstrap.servers": broker.bootstrap, "client.id": stage.group}
    slow_down(broker.bootstrap, stage.group, 30_000_000)
    raw = [line(1).replace(b"http://", b"http://" + noise(size, seed)) for seed in range(20)]
    written = (Written(raw[n % 20], partition=each) for n in range(records) for each in range(partitions))
    produce(broker.bootstrap, stage.source, written, **{"client.id": "feed"})
    process = psutil.Process()
    before, most = process.memory_info().rss, 0

    with stage.running(*stage.ranges(1 << 40)):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            most = max(most, process.memory_info().rss)
            time.sleep(0.1)

    print(f"{(most - before) >> 20} MiB more at most, of a backlog of {partitions * records * size >> 20} MiB")
    assert most - before < 600 << 20
