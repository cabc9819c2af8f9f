"""What an audit covers: ranges of the source partitions, and how much of the sink and the dead letters is settled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.config import Config
from app.driver.clients import Clients
from app.driver.task_config import task_config
from app.errors import ConfigError
from app.model import NOBODY, Partition, TaskConfig
from app.operate.audit import Auditor, End, Readers, refuse_lost_times, stable_ends
from app.operate.judging import Verdict
from app.operate.lag import PartitionLag, offsets_of
from app.operate.ranges import Asked, Layout, LeftOut, Range, packed, ranges, sampled, together
from app.operate.reading import Cleanse

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


class Audit(NamedTuple):
    """
    An audit with all that it needs to know of Kafka.

    Args:
        judged: what is judged of the scope: all of it, or a sample.
        times: every line with a timestamp between these must have a record; None in a sample.
    """

    tasks: TaskConfig
    scope: Scope
    judged: Mapping[Partition, Range]
    times: tuple[int, float] | None

    @classmethod
    def of(cls, settings: Config, clients: Clients, since: int, until: int | None, sample: float | None) -> Audit:
        """Return the audit between two times, of a percentage of the records or of all."""
        tasks = task_config(settings, clients.destinations, NOBODY)
        scope = Scope.of(offsets_of(settings, clients), clients, tasks, since, until)
        if sample is not None:
            return cls(timeless(tasks), scope, sampled(scope.judged, sample), None)
        return cls(timeless(tasks), scope, scope.judged, (since, math.inf if until is None else until))

    @property
    def length(self) -> int:
        """How many offsets are judged."""
        return sum(each.offsets for each in self.judged.values())

    def verdicts(self, cleanse: Cleanse, readers: Readers, advance: Callable[[int], object]) -> list[Verdict]:
        """Compare the source with the output; `advance` receives the number of records read."""
        auditor = Auditor(cleanse, readers, self.scope.layout, self.scope.ends, self.times, advance=advance)
        return [
            auditor.compare(sources, {each: self.judged[each] for each in sources if each in self.judged})
            for sources in self.scope.packs(self.judged)
        ]


def timeless(tasks: TaskConfig) -> TaskConfig:
    """Return the configuration with any timestamp allowed: a topic may have taken then what it would refuse now."""
    sink, dead_letters = (replace(each, before=None, after=None) for each in (tasks.sink, tasks.dead_letters))
    return replace(tasks, sink=sink, dead_letters=dead_letters)
