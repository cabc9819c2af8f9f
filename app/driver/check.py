"""What `winnow check --connect` reports: whether the service could work, and where it would start. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from app.config import Config
from app.driver.clients import Clients
from app.driver.discover import Discovery, refuse_compacted
from app.model import Destination, Guarantee
from app.offsets.mirrors import Mirrors


def connected(config: Config, clients: Clients, say: Callable[[str], object]) -> int:
    """
    Ask Kafka once; return 0 if every partition could be worked on, 1 if some are blocked.

    Raises:
        Unreachable, NotUsable: Kafka cannot be worked with as it is.
    """
    sink, dead_letters = (clients.destinations.destination(each.topic) for each in (config.sink, config.dead_letters))
    refuse_compacted(dead_letters)
    for each in (sink, dead_letters):
        say(f"ok       {each.topic}: {each.partitions} partitions, {_taken(each)}")
    if config.delivery_guarantee is Guarantee.EXACTLY_ONCE:
        clients.fence.refuse_short_transactions()
    workload = Discovery(config, replace(clients, mirrors=Mirrors())).discover()
    for partition, offset_range in sorted(workload.ranges.items()):
        say(f"ok       {partition}: starts at {offset_range.start}, {workload.lag(partition)} offsets behind")
    if clients.placeholders is not None:
        for name, partitions in clients.placeholders.lacking(workload.ranges).items():
            say(f"to do    {name}: Winnow will give it {partitions} partitions on the sink's cluster, for offsets only")
    for error in workload.blocked.values():
        say(f"blocked  {error}")
    return 1 if workload.blocked else 0


def _taken(topic: Destination) -> str:
    """Say which records a topic takes."""
    limits = [f"{limit.setting} {limit.milliseconds}" for limit in (topic.before, topic.after) if limit]
    keys = ["only with a key"] if topic.compacted else []
    return ", ".join([f"records up to {topic.max_bytes} bytes", *keys, *limits])
