"""A topic whose leaders refuse writes because too few replicas are in sync."""

from __future__ import annotations

from functools import partial

from app.embedded.broker import Broker
from app.model import Guarantee
from tests.independent import arrived, by_partition, cleansed, lines, produce, read
from tests.integration.in_process import Told, services
from tests.integration.service import settings
from tests.integration.three_nodes.placed import FRAGILE_NODE
from tests.support.waiting import until


def test_too_few_replicas_in_sync(three: Broker) -> None:
    """While the sink's leaders refuse writes, the log says why and records wait. Afterwards each arrives once."""
    for name in ("raw", "dead"):
        three.create_topic(name, 2, replication=3)
    sinks = {each: three.create_topic(each.value, 2, {"min.insync.replicas": "3"}, 3) for each in Guarantee}
    configs = [
        settings(
            three.bootstrap, group=sink, sources=["raw"], sink=sink, dead="dead", delivery_guarantee=guarantee.value
        )
        for guarantee, sink in sinks.items()
    ]
    produce(three.bootstrap, "raw", lines(0, 10, 0, 1))
    with services(*configs) as (told, ends):
        for sink in sinks.values():
            arrived(three.bootstrap, sink, 20)
        three.stop(FRAGILE_NODE)
        produce(three.bootstrap, "raw", lines(10, 20, 0, 1))
        for partition in range(2):
            until(partial(both_say_why, told, partition), "both services to say why")
        three.start(FRAGILE_NODE)
        for sink in sinks.values():
            arrived(three.bootstrap, sink, 40)
        codes = [end() for end in ends]

    assert [0, 0] == codes
    exactly, at_least = [by_partition(read(three.bootstrap, sink)) for sink in sinks.values()]
    once = {each: [cleansed(n, each) for n in range(20)] for each in range(2)}
    assert once == exactly
    assert once == {each: list(dict.fromkeys(values)) for each, values in at_least.items()}


def both_say_why(told: Told, partition: int) -> bool:
    """Whether both services have said it; before, they may have said that the partition has no leader."""
    words = f"-{partition} has 2 in-sync replicas but min.insync.replicas is 3"
    return sum(words in each["error"] for each in told.all("partition_waiting", partition=partition)) >= 2
