"""What an offset store is: it remembers the next offset of each partition, and it never goes back by accident."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard, runtime_checkable

from app.model import CommittedOffset, Partition


@dataclass(frozen=True, slots=True)
class StoreContext:
    """
    What a store is opened for.

    Args:
        group: the consumer group whose offsets it keeps.
        kafka: the properties of the cluster whose records are written, and whose transactions an offset can join.
        consumer: a consumer of that cluster that the store may use, so that it needs no second connection; None in the
            driver, and where the source is on another cluster.
        placeholder: the name, with `{topic}` in it, of the topic on that cluster which stands for a source topic of
            another cluster; empty where both are the same.
        planned: the offsets that the driver has planned with, for a task; empty in the driver.
    """

    group: str
    kafka: Mapping[str, str]
    consumer: Any = None
    planned: Mapping[Partition, CommittedOffset] = field(default_factory=dict)
    placeholder: str = ""

    def topic(self, source: str) -> str:
        """Return the topic whose offsets stand for those of a source topic."""
        return self.placeholder.format(topic=source) if self.placeholder else source


@runtime_checkable
class OffsetStore(Protocol):
    """
    Remembers the next offset of each partition of one group.

    The driver and each task open a store of their own. A store is used by several threads of its process at once.
    Subclass `app.offsets.testing.OffsetStoreContract` to prove one.
    """

    transactional: bool
    """Whether an offset can be saved inside a Kafka transaction, which exactly-once delivery needs."""

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        """
        Return the stored offset of each partition that has one.

        Where something else is stored than an offset, the value says so (`CommittedOffset.corrupt`): that blocks one
        partition, and not the others.

        Args:
            partitions: the partitions to look up.
            stable: wait until no transaction is about to move one of these offsets (KIP-447).

        Raises:
            Unreachable: the store does not answer now.
            NotUsable: a person must act, for example because of credentials.
        """
        ...

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        """
        Store the next offset to read; saving the same offset again renews it.

        Raises:
            Fenced: the stored offset is larger, because another owner went on from there; nothing changes.
            CorruptOffset: something else is stored than an offset; nothing changes.
            Transient: it is unknown whether the offset was stored.
        """
        ...

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        """
        Store an offset whatever is stored now, because a person or a policy decided so.

        Raises:
            Transient: it is unknown whether the offset was stored.
        """
        ...

    def close(self) -> None:
        """Release connections."""
        ...


class TransactionalOffsetStore(OffsetStore, Protocol):
    """A store whose offsets can move with the records of a Kafka transaction."""

    def save_in_transaction(self, producer: Any, partition: Partition, offset: int, metadata: str) -> None:  # noqa: ANN401  # a client of Kafka, which only the store and its writer know
        """Store the next offset to read inside the producer's open transaction, whose fence keeps older owners out."""
        ...

    def save_beside(self, producer: Any, partition: Partition, offset: int) -> None:  # noqa: ANN401  # as above
        """Store the offset of a partition of ours that is no source, so that the transaction ends beside the others."""
        ...


def is_local(store: OffsetStore) -> bool:
    """Return whether a store keeps offsets in the memory of its process, so that the driver learns them by receipts."""
    return bool(getattr(store, "is_local", False))


@dataclass(frozen=True, slots=True)
class PastOffsets:
    """
    The offsets of a topic at an earlier time.

    Args:
        time: the time, in milliseconds since 1970.
        offsets: the next offset of each partition.
        topic_ids: the id of the topic that each offset belongs to, where that is known.
    """

    time: int
    offsets: Mapping[int, int]
    topic_ids: Mapping[int, str] = field(default_factory=dict)


@runtime_checkable
class OffsetHistory(Protocol):
    """What a store does that also keeps the offsets of earlier times."""

    def history(self, topic: str, most: int, until: int | None = None) -> Sequence[PastOffsets]:
        """
        Return the offsets of a topic at earlier times, the newest first.

        Args:
            topic: the topic.
            most: how many times at most.
            until: the latest time, in milliseconds since 1970.

        Raises:
            Unreachable, NotUsable: the store does not answer, or refuses.
        """
        ...


def is_transactional(store: OffsetStore) -> TypeGuard[TransactionalOffsetStore]:
    """Return whether a store can take part in Kafka's transactions."""
    return store.transactional


Committed = Callable[[Partition, int, str], None]
"""Takes in an offset that is committed, with its metadata."""


def nobody(_partition: Partition, _offset: int, _metadata: str) -> None:
    """Tell nobody that an offset is committed."""
