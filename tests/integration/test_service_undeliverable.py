"""One of eight sink partitions has no leader for a while: the other seven notice next to nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.driver.rebalance import STALLED_SECONDS
from app.embedded.broker import Broker
from tests.conftest import QUICK_JAVA
from tests.independent import Feeder, by_partition, committed, ends, read, sequence
from tests.integration.service import Winnow, settings
from tests.support.waiting import until

PARTITIONS = 8
LOST = 7
"""The sink partition that only the third node has, which has nothing else."""
REBALANCE = "the round ends for a rebalance"
INTERNAL = {name: {"cleanup.policy": "compact"} for name in ("__consumer_offsets", "__transaction_state")}
PER_SECOND = 1_600


@pytest.fixture
def three() -> Iterator[Broker]:
    """Return three nodes, the last of which has one partition of the sink, and nothing else."""
    with Broker(nodes=3, java=QUICK_JAVA) as broker:
        others = [[1], [2]] * 4
        homes = dict.fromkeys(INTERNAL, [[1, 2]] * 5)
        homes |= {"raw": others, "clean": [*others[:LOST], [3]], "dead": [[1]]}
        placed = [
            NewTopic(name, len(on), replica_assignment=on, config=INTERNAL.get(name, {"retention.ms": "-1"}))
            for name, on in homes.items()
        ]
        admin = broker.admin()
        for created in admin.create_topics(placed).values():
            created.result(60)
        yield broker


def caught_up(broker: Broker) -> bool:
    """
    Whether everything of the partition is committed, and readable.

    Kafka 4 skips the markers of a transaction in a partition without a leader, as if its topic were deleted: records that
    were committed in the moment of the kill may be aborted later, whoever wrote them.
    """
    end = ends(broker.bootstrap, "raw")["raw", LOST]
    done = committed(broker.bootstrap, "lost", "raw").get(("raw", LOST)) == end
    return done and end <= len(by_partition(read(broker.bootstrap, "clean")).get(LOST, []))


def offsets(broker: Broker) -> dict[int, int]:
    """Return the committed offset of each source partition."""
    found = committed(broker.bootstrap, "lost", "raw")
    return {number: found.get(("raw", number), 0) for number in range(PARTITIONS)}


def goes_on(broker: Broker, *partitions: int) -> None:
    """Wait until each of these partitions has committed more than now."""
    before = offsets(broker)
    until(lambda: all(offsets(broker)[each] > before[each] for each in partitions), "a flow")


def test_a_sink_partition_without_a_leader(three: Broker, tmp_path: Path) -> None:
    """The others go on, the round too; the log names the partition once; it goes on by itself, and nothing is lost."""
    config = settings(three.bootstrap, group="lost", sources=["raw"], sink="clean", dead="dead", round_interval="1s")
    others = [number for number in range(PARTITIONS) if number != LOST]
    with Winnow(config, tmp_path) as service, Feeder(three.bootstrap, "raw", PARTITIONS, PER_SECOND) as feeder:
        until(lambda: all(offsets(three).values()), "a flow")
        feeder.paused.add(LOST)
        until(lambda: caught_up(three), "the lost partition's last commit")
        rebalances = len(service.logged(REBALANCE))
        three.kill(3)
        feeder.paused.clear()
        killed = time.monotonic()
        waits = service.wait_for("partition waits; the others go on")
        goes_on(three, *others)
        until(lambda: time.monotonic() - killed > STALLED_SECONDS + 2, "the time after which others count as stalled")
        goes_on(three, *others)
        assert [] == service.logged(REBALANCE)[rebalances:]
        three.start(3)
        goes_on(three, LOST)
        feeder.stop()
        until(lambda: len(read(three.bootstrap, "clean")) >= feeder.written.total(), "the end")
        assert 0 == service.stop()

    assert sequence(feeder.written) == by_partition(read(three.bootstrap, "clean"))
    assert {LOST} == {each["partition"] for each in service.logged("partition waits; the others go on")}
    assert "clean-7" in waits["error"]
    assert 1 == len(service.logged("partition goes on"))
