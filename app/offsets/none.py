"""
The store that remembers nothing: at each start of the service, the start policy decides where each partition begins.

While the service runs, the driver keeps what its tasks report, and tells each task what it has planned with. A task
that is killed reports nothing, so the next round repeats its work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from app.model import CommittedOffset, Partition
from app.offsets.contract import StoreContext
from app.offsets.failures import refuse_to_go_back


class NoOffsets:
    """
    The offsets of a group in the memory of one process.

    Args:
        context: what the store is opened for; a task begins with the offsets that the driver has planned with.
    """

    transactional = False
    is_local = True

    def __init__(self, context: StoreContext) -> None:
        self._offsets = dict(context.planned)
        self._lock = threading.Lock()

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:  # noqa: ARG002  # outside Kafka's transactions, every offset is stable
        """Return the offset of each partition that has one."""
        with self._lock:
            return {each: self._offsets[each] for each in partitions if each in self._offsets}

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        """
        Keep an offset.

        Raises:
            Fenced: a larger one is kept.
        """
        with self._lock:
            refuse_to_go_back(partition, self._offsets.get(partition), offset)
            self._offsets[partition] = CommittedOffset(offset, metadata)

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        """Keep an offset even if that goes back."""
        with self._lock:
            self._offsets[partition] = CommittedOffset(offset, metadata)

    def close(self) -> None:
        """Do nothing: the offsets go with the process."""
