"""Whether a newly met source partition is new to the group, and whether its offset was left behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.config import Config
from app.cures import KafkaTools, migrate_offsets
from app.driver.starting_offsets import PartitionOffsets, StartPolicy, decide, is_witness, stored_block
from app.errors import Blocked, OffsetLeftBehind
from app.model import CommittedOffset, Partition, Topic
from app.offsets.contract import OffsetStore

ON_SOURCE = "the group's offset exists only on the source's cluster; with sink.kafka, offsets are kept elsewhere"
IN_KAFKA = "the group's offset exists only in Kafka, not in the store {!r}, where offsets are kept now"


class Newcomers:
    """Sees each partition once, and judges by the group's offsets, which exist even for partitions without a leader."""

    def __init__(self, config: Config, copies: OffsetStore | None) -> None:
        self._copies = copies
        self._asks = config.starting_offsets == "error"
        store, two_clusters = config.offsets.store.name, bool(config.placeholder)
        self._cause = ON_SOURCE if two_clusters else IN_KAFKA.format(store)
        command = migrate_offsets("source" if two_clusters else "kafka", store)
        self._cure = (
            f"stop Winnow, then carry it over with {command}; or, to start afresh, "
            f"{KafkaTools.of(config.kafka).delete_group(config.group_id)}"
        )
        self._known: set[Partition] | None = None
        self._new: set[Partition] = set()
        self._left_behind: dict[Partition, int] = {}
        """The offsets that only Kafka on the source's cluster has; until they are carried over or deleted."""

    @property
    def known(self) -> Collection[Partition]:
        return self._known or ()

    def record(self, committed: Mapping[Partition, CommittedOffset | None], topics: Mapping[str, Topic]) -> None:
        """
        Record which partitions exist, with their committed offsets (None without one).

        If the copies on the source's cluster cannot be read, nothing is decided.
        """
        added = committed.keys() - (self._known or ())
        without = [each for each in added | (self._left_behind.keys() & committed.keys()) if committed[each] is None]
        copies = self._look_for_copies(without)
        if self._known is None:  # a partition is new if the group has worked on another one of its topic (KIP-1327)
            offsets = {**committed, **copies}
            last = {
                each.topic: each.number for each in sorted(offsets) if is_witness(offsets[each], topics[each.topic].id)
            }
            # One below the last may have lost its offset: with `error`, a person decides whether to repeat its records.
            self._new = {
                each for each in added if each.topic in last and not (self._asks and each.number < last[each.topic])
            }
        else:
            self._new |= added
        self._known = {*self.known, *added}

    def _look_for_copies(self, partitions: Collection[Partition]) -> Mapping[Partition, CommittedOffset]:
        """Only the copy has an offset if `sink.kafka` or `offsets.store` is new, or the main store lost it."""
        copies = self._copies.load(partitions, stable=False) if self._copies is not None and partitions else {}
        kept = {each: offset for each, offset in self._left_behind.items() if each not in partitions}
        self._left_behind = kept | {each: copy.offset for each, copy in copies.items()}
        return copies

    def forget(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that are gone; one that appears again is new."""
        if self._known is not None:
            self._known.difference_update(partitions)
        self._new.difference_update(partitions)
        for each in partitions:
            self._left_behind.pop(each, None)

    def is_new(self, partition: Partition) -> bool:
        """Return whether a partition, if it has no offset, was created after the group began with its topic."""
        return partition in self._new

    def refuse_left_behind(self, at: PartitionOffsets) -> None:
        """Raise OffsetLeftBehind for a partition without an offset that had a copy when it was met."""
        if at.committed is None and at.partition in self._left_behind:
            raise OffsetLeftBehind(at.partition, self._cause, self._left_behind[at.partition], self._cure)

    def judge(self, at: PartitionOffsets, policy: StartPolicy) -> Blocked | None:
        """Return why a partition needs an operator, as far as can be seen without the service; None if it does not."""
        try:
            self.refuse_left_behind(at)
            decide(at, policy, first_seen=None, had_offset_in=None, is_new=self.is_new(at.partition), cut=None)
        except Blocked as error:
            return error
        return stored_block(at)
