"""The partitions that may hold a record that kills or hangs the workers that parse it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.driver.starting_offsets import PartitionOffsets
from app.driver.workload import Workload
from app.model import Partition

# More such records may follow one. The longest round takes this long, too.
SUSPECT_SECONDS = 600.0


class Suspects:
    """Remembers the positions of partitions when the workers of a round died or hung."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stood: dict[Partition, int] = {}
        """The next offset of each partition, as last seen in the failed round."""
        self._until: dict[Partition, float] = {}

    def round_died(self, offsets: Mapping[Partition, PartitionOffsets]) -> None:
        """Record the last seen offsets of a round in which workers died or hung."""
        self._stood = {partition: at.next_offset(0) for partition, at in offsets.items()}

    def acquit(self) -> None:
        """Forget the last failed round: Kafka is not responding, so its tasks may only have waited for Kafka."""
        self._stood.clear()

    def among(self, workload: Workload) -> frozenset[Partition]:
        """Return the partitions with waiting records that have committed nothing since such a round."""
        for partition in workload.ranges.keys() & self._stood.keys():
            if workload.lag(partition) and workload.offsets[partition].next_offset(0) == self._stood[partition]:
                self._until[partition] = self._clock() + SUSPECT_SECONDS
        self._stood.clear()
        return frozenset(partition for partition, until in self._until.items() if self._clock() < until)
