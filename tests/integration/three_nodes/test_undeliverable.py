"""One of eight sink partitions has no leader for a while: the other seven are barely affected."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.embedded.broker import Broker
from app.runtime import Timings
from tests.independent import Feeder, amiss, by_partition, committed, ends, held, read
from tests.integration.service import Winnow, settings
from tests.integration.three_nodes.placed import FRAGILE_NODE
from tests.support.waiting import until

PARTITIONS = 8
LOST = 7
"""The only sink partition on the fragile node."""
RAW, CLEAN, DEAD = "lost.raw", "lost.clean", "lost.dead"
KEPT = {"retention.ms": "-1"}
REBALANCE = "rebalance"
PER_SECOND = 400


def placed(three: Broker) -> None:
    """Create the topics, with all but that partition on the nodes that stay up."""
    others = [[1], [2]] * 4
    homes = {RAW: others, CLEAN: [*others[:LOST], [FRAGILE_NODE]], DEAD: [[1]]}
    three.create_topics(*(NewTopic(name, len(on), replica_assignment=on, config=KEPT) for name, on in homes.items()))


def caught_up(broker: Broker) -> bool:
    """
    Whether everything in the partition is committed and readable.

    Kafka 4 skips the markers of a transaction in a partition without a leader, as if its topic were deleted. Records
    that were committed at the moment of the kill may be aborted later, whoever wrote them.
    """
    end = ends(broker.bootstrap, RAW)[RAW, LOST]
    done = committed(broker.bootstrap, "lost", RAW).get((RAW, LOST)) == end
    return done and end <= len(by_partition(read(broker.bootstrap, CLEAN)).get(LOST, []))


def offsets(broker: Broker) -> dict[int, int]:
    """Return the committed offset of each source partition."""
    found = committed(broker.bootstrap, "lost", RAW)
    return {number: found.get((RAW, number), 0) for number in range(PARTITIONS)}


def goes_on(broker: Broker, *partitions: int) -> None:
    """Wait until each of these partitions has committed more than now."""
    before = offsets(broker)
    until(lambda: all(offsets(broker)[each] > before[each] for each in partitions), "a flow")


def test_a_sink_partition_without_a_leader(three: Broker, tmp_path: Path) -> None:
    """The other partitions and the round continue. The log names the partition once, and it recovers without loss."""
    placed(three)
    config = settings(three.bootstrap, group="lost", sources=[RAW], sink=CLEAN, dead=DEAD)
    others = [number for number in range(PARTITIONS) if number != LOST]
    with (
        Winnow(config, tmp_path) as service,
        Feeder(three.bootstrap, RAW, PARTITIONS, PER_SECOND) as feeder,
    ):
        until(lambda: all(offsets(three).values()), "a flow")
        feeder.pause(LOST)
        until(lambda: caught_up(three), "the lost partition's last commit")
        rebalances = len(service.logged(REBALANCE))
        three.kill(FRAGILE_NODE)
        feeder.resume()
        killed = time.monotonic()
        waits = service.wait_for("partition_waiting")
        goes_on(three, *others)
        until(
            lambda: time.monotonic() - killed > Timings().commit_overdue + 2,
            "the time after which others count as overdue",
        )
        goes_on(three, *others)
        assert [] == service.logged(REBALANCE)[rebalances:]
        three.start(FRAGILE_NODE)
        goes_on(three, LOST)
        feeder.stop()
        until(lambda: offsets(three) == {at: end for (_, at), end in ends(three.bootstrap, RAW).items()}, "the end")
        assert 0 == service.stop()

    found = read(three.bootstrap, CLEAN)
    assert held(three.bootstrap, RAW) == by_partition(found), amiss(feeder.written, found)
    assert {LOST} == {each["partition"] for each in service.logged("partition_waiting")}
    assert f"{CLEAN}-{LOST}" in waits["error"]
    assert 1 == len(service.logged("partition_wait_over"))
