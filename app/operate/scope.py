"""What an audit covers: ranges of the source partitions, and how much of the sink and the dead letters is settled."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.driver.clients import Clients
from app.errors import ConfigError
from app.model import Partition, TaskConfig
from app.operate.auditing import End, refuse_lost_times, stable_ends
from app.operate.lag import PartitionLag
from app.operate.ranges import Asked, Layout, LeftOut, Range, packed, ranges, together

MOST = 10_000_000
"""How many records are compared together, in about 0.6 GB of memory."""


class Scope(NamedTuple):
    """
    What to audit.

    Args:
        sources: all source partitions.
        judged: what can be judged of them.
        left_out: what cannot.
        ends: the ends of the partitions of sink and dead letters.
    """

    layout: Layout
    sources: Sequence[Partition]
    judged: Mapping[Partition, Range]
    left_out: Sequence[LeftOut]
    ends: Mapping[Partition, End]

    @classmethod
    def of(
        cls, found: Collection[PartitionLag], kafka: Clients, tasks: TaskConfig, since: int, until: int | None
    ) -> Scope:
        """
        Return what to audit between two times: at most what was committed before the sink's ends are read.

        Raises:
            NotUsable: lines cannot be matched with their records.
        """
        topics = [kafka.topics.destination(name) for name in sorted({each.partition.topic for each in found})]
        layout = Layout.of(tasks, topics)
        refuse_lost_times(layout)
        led = [each.partition for each in found if each.watermarks is not None]
        outputs = (tasks.sink, tasks.dead_letters)
        written = [Partition(each.topic, number) for each in outputs for number in range(each.partitions)]
        stable = stable_ends(kafka.destinations, written)
        now = round(time.time() * 1000)
        asked = Asked(
            since,
            until,
            kafka.topics.offsets_at(led, since),
            {} if until is None else kafka.topics.offsets_at(led, until),
            kafka.topics.offsets_at(led, 0),
            {each.topic: None if each.retention is None else now - each.retention for each in topics},
        )
        judged, left_out = ranges(found, kafka.offsets.load(led, stable=False), asked)
        return cls(layout, [each.partition for each in found], judged, left_out, stable)

    def packs(self, judged: Mapping[Partition, Range]) -> list[list[Partition]]:
        """
        Return groups of source partitions to compare together.

        Raises:
            ConfigError: a group has more records than fit into memory.
        """
        sizes = {each: found.read for each, found in judged.items()}
        groups = [each for each in together(self.layout, self.sources) if judged.keys() & each]
        for group in groups:
            if (size := sum(sizes.get(each, 0) for each in group)) > MOST:
                msg = f"{size} records share sink partitions and must be compared together, but at most {MOST} can be: "
                raise ConfigError((f"{msg}narrow the range with --from and --to, or use --sample",))
        return packed(groups, sizes, MOST)


def timeless(tasks: TaskConfig) -> TaskConfig:
    """Return the configuration with any timestamp allowed: a topic may have taken then what it would refuse now."""
    sink, dead_letters = (replace(each, before=None, after=None) for each in (tasks.sink, tasks.dead_letters))
    return replace(tasks, sink=sink, dead_letters=dead_letters)
