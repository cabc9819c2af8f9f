"""What an audit covers: ranges of the source partitions, and how much of the sink and the dead letters is settled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.config import Config
from app.driver.clients import Clients
from app.driver.task_config import task_config
from app.errors import ConfigError
from app.model import NOBODY, Partition, TaskConfig
from app.operate.audit import Auditor, End, Readers, refuse_lost_times, stable_ends
from app.operate.judging import Verdict
from app.operate.lag import offsets_of
from app.operate.ranges import Asked, Layout, LeftOut, Range, packed, ranges, sampled, together
from app.operate.reading import Cleanse

MOST = 10_000_000
"""How many records are compared together, in about 0.6 GB of memory."""


class Scope(NamedTuple):
    """
    What to audit.

    Args:
        tasks: the service's, with any timestamp allowed: a topic may have taken then what it would refuse now.
        sources: all source partitions.
        judged: what is judged of them.
        left_out: what cannot be.
        ends: the ends of the partitions of sink and dead letters.
        times: every line with a timestamp between these must have a record; None in a sample.
    """

    tasks: TaskConfig
    layout: Layout
    sources: Sequence[Partition]
    judged: Mapping[Partition, Range]
    left_out: Sequence[LeftOut]
    ends: Mapping[Partition, End]
    times: tuple[int, float] | None

    @classmethod
    def of(cls, settings: Config, kafka: Clients, since: int, until: int | None, sample: float | None) -> Scope:
        """
        Return what to audit between two times: at most what was committed before the sink's ends are read.

        Args:
            sample: the percentage of the records to judge; None for all.

        Raises:
            NotUsable: lines cannot be matched with their records.
        """
        tasks, found = task_config(settings, kafka.destinations, NOBODY), offsets_of(settings, kafka)
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
        times = (since, math.inf if until is None else until) if sample is None else None
        judged = judged if sample is None else sampled(judged, sample)
        sink, dead_letters = (replace(each, before=None, after=None) for each in outputs)
        timeless = replace(tasks, sink=sink, dead_letters=dead_letters)
        return cls(timeless, layout, [each.partition for each in found], judged, left_out, stable, times)

    @property
    def length(self) -> int:
        """How many offsets are judged."""
        return sum(each.offsets for each in self.judged.values())

    def audit(self, cleanse: Cleanse, readers: Readers, advance: Callable[[int], object]) -> list[Verdict]:
        """
        Compare the source with the output; `advance` receives the number of records read.

        Raises:
            ConfigError: more records must be compared together than fit into memory.
        """
        auditor = Auditor(cleanse, readers, self.layout, self.ends, self.times, advance=advance)
        return [
            auditor.compare(sources, {each: self.judged[each] for each in sources if each in self.judged})
            for sources in self._packs()
        ]

    def _packs(self) -> list[list[Partition]]:
        sizes = {each: found.read for each, found in self.judged.items()}
        groups = [each for each in together(self.layout, self.sources) if self.judged.keys() & each]
        for group in groups:
            if (size := sum(sizes.get(each, 0) for each in group)) > MOST:
                msg = f"{size} records share sink partitions and must be compared together, but at most {MOST} can be: "
                raise ConfigError((f"{msg}narrow the range with --from and --to, or use --sample",))
        return packed(groups, sizes, MOST)
