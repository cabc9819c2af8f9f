"""
The store that remembers nothing: at each start of the service, `starting.offsets` decides where partitions start.

While the service runs, the driver keeps the offsets that tasks report, and passes each task its planned offsets. A
killed task reports nothing, so the next round repeats its work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from app.offsets.failures import refuse_to_go_back


class NoOffsets:
    """The offsets of a group in the memory of one process; a task's start with those that the driver planned with."""

    transactional = False
    is_local = True

    def __init__(self, context: StoreContext) -> None:
        self._offsets = dict(context.planned or {})
        self._lock = threading.Lock()

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:  # noqa: ARG002  # outside Kafka's transactions, every offset is stable
        with self._lock:
            return {each: self._offsets[each] for each in partitions if each in self._offsets}

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        with self._lock:
            refuse_to_go_back(partition, self._offsets.get(partition), offset)
            self._offsets[partition] = CommittedOffset(offset, metadata)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        with self._lock:
            self._offsets[partition] = CommittedOffset(offset, metadata)

    def close(self) -> None:
        """Do nothing: the offsets go with the process."""
