"""What is decided of a source partition when it is met: whether it is new, and whether its offset was left behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from app.config import Config
from app.cures import KafkaTools, take_along
from app.driver.starting_offsets import PartitionOffsets, StartPolicy, decide, is_witness, told
from app.errors import Blocked, OffsetLeftBehind
from app.model import CommittedOffset, Partition, Topic
from app.offsets.contract import OffsetStore

LEFT_BEHIND = "only the source's cluster has the group's offset, and with sink.kafka offsets are elsewhere"


class Newcomers:
    """
    Meets the partitions, each of them once.

    What is decided rests on the group's offsets, and the group has those of a partition without a leader, too.

    Args:
        config: the configuration.
        copies: the group's offsets on the source's cluster; None where its true offsets are there.
    """

    def __init__(self, config: Config, copies: OffsetStore | None) -> None:
        self._copies = copies
        self._cure = (
            f"stop Winnow, then take it along by {take_along(config.offsets.store.name)}; or, to begin anew, "
            f"{KafkaTools.of(config.kafka).delete_group(config.group_id)}"
        )
        """What to do about an offset that only the copies have."""
        self._known: set[Partition] | None = None
        self._new: set[Partition] = set()
        self._left_behind: dict[Partition, int] = {}
        """The offsets that only the source's cluster had when their partitions were met."""

    @property
    def known(self) -> Collection[Partition]:
        """Every partition that was met."""
        return self._known or ()

    def meet(self, committed: Mapping[Partition, CommittedOffset | None], topics: Mapping[str, Topic]) -> None:
        """
        Take in which partitions exist, and the committed offset of each of them; None where there is none.

        Raises:
            Unreachable, NotUsable: the source's cluster does not tell its copies; then nothing is decided.
        """
        met = committed.keys() - (self._known or ())
        self._look_for_copies([each for each in met if committed[each] is None])
        if self._known is None:  # a partition is new where the group has worked on another one of its topic (KIP-1327)
            begun = {each.topic for each, at in committed.items() if is_witness(at, topics[each.topic].id)}
            self._new = {each for each in met if each.topic in begun}
        else:
            self._new |= met
        self._known = {*self.known, *met}

    def _look_for_copies(self, partitions: Collection[Partition]) -> None:
        """Copies follow the truth, so where only the copy exists `sink.kafka` is new, or the truth was lost."""
        if self._copies is not None and partitions:
            copies = self._copies.load(partitions, stable=False)
            self._left_behind |= {partition: copy.offset for partition, copy in copies.items()}

    def is_new(self, partition: Partition) -> bool:
        """Return whether a partition, if it has no offset, is younger than the group's work on its topic."""
        return partition in self._new

    def refuse_left_behind(self, at: PartitionOffsets) -> None:
        """
        Require of a partition without an offset that there was no copy of one when it was met.

        Raises:
            OffsetLeftBehind: there was.
        """
        if at.committed is None and at.partition in self._left_behind:
            raise OffsetLeftBehind(at.partition, LEFT_BEHIND, self._left_behind[at.partition], self._cure)

    def judge(self, at: PartitionOffsets, policy: StartPolicy) -> Blocked | None:
        """Return why a partition waits for a person, as far as is seen without the service; None if it does not."""
        try:
            self.refuse_left_behind(at)
            decide(at, policy, first_seen=None, had_offset_in=None, is_new=self.is_new(at.partition), cut=None)
        except Blocked as error:
            return error
        return told(at)
