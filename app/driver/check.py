"""What `winnow check --connect` reports: whether the service could work, and where it would start. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from app.config import Config
from app.driver.clients import Clients
from app.driver.discover import Discovery
from app.model import Guarantee


def connected(config: Config, clients: Clients, say: Callable[[str], object]) -> int:
    """
    Ask Kafka once; return 0 if every partition could be worked on, 1 if some are blocked.

    Raises:
        Unreachable, NotUsable: Kafka cannot be worked with as it is.
    """
    for topic in (config.sink.topic, config.dead_letters.topic):
        destination = clients.destinations.destination(topic)
        say(f"ok       {topic}: {destination.partitions} partitions, records up to {destination.max_bytes} bytes")
    if config.delivery_guarantee is Guarantee.EXACTLY_ONCE:
        clients.fence.refuse_short_transactions()
    workload = Discovery(config, clients).discover()
    for partition, offset_range in sorted(workload.ranges.items()):
        say(f"ok       {partition}: starts at {offset_range.start}, {workload.lag(partition)} offsets behind")
    if clients.placeholders is not None:
        for name, partitions in clients.placeholders.lacking(workload.ranges).items():
            say(f"to do    {name}: Winnow will give it {partitions} partitions on the sink's cluster, for offsets only")
    for error in workload.blocked.values():
        say(f"blocked  {error}")
    return 1 if workload.blocked else 0
