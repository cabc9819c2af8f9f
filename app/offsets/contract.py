"""The contract of offset stores: they remember the next offset of each partition, which never goes back by accident."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard, runtime_checkable

from app.model import CommittedOffset, Partition
from app.times import time_of


@dataclass(frozen=True, slots=True)
class StoreContext:
    """
    The context that a store is opened in.

    Args:
        group: the consumer group whose offsets it keeps.
        kafka: the properties of the sink's cluster, whose transactions an offset can join.
        placeholder: the name, containing `{topic}`, of the topic that represents a source topic on the sink's cluster;
            empty if both are on one cluster.
        planned: for a task, the offsets that the driver planned with; None in the driver.
    """

    group: str
    kafka: Mapping[str, str]
    planned: Mapping[Partition, CommittedOffset] | None = None
    placeholder: str = ""

    def topic(self, source: str) -> str:
        """Return the topic under which a source topic's offsets are committed."""
        return self.placeholder.format(topic=source) if self.placeholder else source


@runtime_checkable
class OffsetStore(Protocol):
    """
    Remembers the next offset of each partition of one group.

    The driver and each task open a store of their own. Several threads of a process use it concurrently. Subclass
    `app.offsets.testing.OffsetStoreContract` to test one.
    """

    transactional: bool
    """Whether offsets can be saved inside a Kafka transaction, which exactly-once delivery needs."""

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        """
        Return the stored offset of each partition that has one.

        If the store holds something other than an offset, `CommittedOffset.corrupt` says so: that blocks only this
        partition.

        Args:
            stable: wait until no open transaction can still move one of these offsets (KIP-447).

        Raises:
            Unreachable: the store does not answer now.
            NotUsable: an operator must act, for example because of credentials.
        """

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        """
        Store the next offset to read; saving the same offset again renews it.

        Raises:
            Fenced: the stored offset is larger, because another owner continued; nothing changes.
            CorruptOffset: the store holds something other than an offset; nothing changes.
            Transient: the offset may not have been stored.
        """

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        """
        Store an offset whatever is stored now, because an operator or a policy decided so.

        Raises:
            Transient: the offset may not have been stored.
            NotAllowed: Kafka denies the right, outside tasks.
        """

    def close(self) -> None:
        """Release connections."""


class TransactionalOffsetStore(OffsetStore, Protocol):
    """A store whose offsets can be part of a transaction. It raises KafkaException, which the writer translates."""

    def save_in_transaction(self, producer: Any, partition: Partition, offset: int, metadata: str) -> None:  # noqa: ANN401  # a client of Kafka, which only the store and its writer know
        """Store the next offset to read inside the producer's open transaction, whose epoch fences older owners."""

    def save_beside(self, producer: Any, partition: Partition, offset: int) -> None:  # noqa: ANN401  # as above
        """Store an offset of another partition, so that the transaction's end marker reaches the group's offsets."""


def is_local(store: OffsetStore) -> bool:
    """Return whether a store keeps offsets in its process's memory, so that the driver learns them from receipts."""
    return bool(getattr(store, "is_local", False))


@dataclass(frozen=True, slots=True)
class PastOffsets:
    """
    The offsets of a topic at an earlier time.

    Args:
        time: in milliseconds since the epoch.
        offsets: the next offset by partition number.
        topic_ids: the id of the topic that each offset belongs to, if known.
    """

    time: int
    offsets: Mapping[int, int]
    topic_ids: Mapping[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        offsets = " ".join(f"{number}={offset}" for number, offset in sorted(self.offsets.items()))
        return f"{time_of(self.time)}  {offsets}"


@runtime_checkable
class OffsetHistory(Protocol):
    """A store that also keeps earlier offsets."""

    def history(self, topic: str, most: int, until: int | None = None) -> Sequence[PastOffsets]:
        """
        Return the offsets of a topic at earlier times, the newest first.

        Args:
            most: how many entries at most.
            until: the latest time, in milliseconds since the epoch.
        """


def is_transactional(store: OffsetStore) -> TypeGuard[TransactionalOffsetStore]:
    return store.transactional


Committed = Callable[[Partition, int, str], None]
"""Receives a committed offset and its metadata."""


def nobody(_partition: Partition, _offset: int, _metadata: str) -> None:
    """Ignore a committed offset."""
