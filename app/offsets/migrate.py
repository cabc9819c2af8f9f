"""Moves a group's offsets between stores or back in time, and refuses to move an offset back unless forced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from app import cures
from app.errors import Blocked, CorruptOffset, Fenced, NotUsable, TopicRecreated
from app.model import CommittedOffset, Partition, Plugin, Topic, partitions_of
from app.offsets.contract import OffsetHistory, OffsetStore, PastOffsets, StoreContext
from app.offsets.metadata import OffsetMetadata
from app.offsets.registry import open_store
from app.times import time_of

GOES_BACK = "it would go back; use --force to allow that"
REPLACES = "it would replace what is not an offset; use --force to allow that"
# `offsets reset` would set an offset in the configured store, which may be the one to move to.
CORRECT = "write the next offset to read in its place, with that store's own tools"
RECREATED = "the topic was deleted and recreated, and the history belongs to the deleted one"


@dataclass(frozen=True, slots=True)
class Move:
    """The move of one partition's offset, and what the target store holds in its place."""

    partition: Partition
    source: CommittedOffset
    target: CommittedOffset | None

    @property
    def is_done(self) -> bool:
        """Whether both stores already hold the same offset."""
        return self.target is not None and not self.target.corrupt and self.target.offset == self.source.offset

    def __str__(self) -> str:
        return f"{self.partition}: {self.target or 'nothing'} → {self.source}"


def moves(
    source: OffsetStore, target: OffsetStore, partitions: Sequence[Partition], *, between_clusters: bool
) -> Iterator[Move]:
    """
    Yield the moves, in order; raises Blocked if the source holds something other than an offset.

    `between_clusters` says that the target's cluster may lack the lines of the records before the offsets.
    """
    there = target.load(partitions, stable=True)
    for partition, at in sorted(source.load(partitions, stable=True).items()):
        if at.corrupt:
            raise Blocked(partition, at.corrupt, cure=CORRECT)
        moving = replace(at, metadata=OffsetMetadata.beginning_anew(at)) if between_clusters else at
        yield Move(partition, moving, there.get(partition))


def moves_back(history: OffsetHistory, target: OffsetStore, topics: Mapping[str, Topic], moment: int) -> Iterator[Move]:
    """
    Yield the moves that restore each topic's newest entry no later than a moment.

    The topic's id goes into the metadata: a task committed the offset, so the group has worked on this topic, and must
    notice if it is created again.

    Raises:
        NotUsable: a topic has no entry that old.
        TopicRecreated: the entry, or what the store holds now, belongs to a deleted topic of the same name.
    """
    there = target.load(partitions_of(topics.values()), stable=True)
    for name, topic in sorted(topics.items()):
        found = history.history(name, 1, until=moment)
        if not found:
            cure = f"{cures.SHOW_HISTORY} lists what there is"
            raise NotUsable(f"the history of {name} does not go back to {time_of(moment)}", cure)
        (past,) = found
        for partition in partitions_of([topic]):
            if partition.number in past.offsets:
                yield _move_back(past, partition, there.get(partition), topic.id)


def _move_back(past: PastOffsets, partition: Partition, now: CommittedOffset | None, topic_id: str) -> Move:
    offset, then = past.offsets[partition.number], past.topic_ids.get(partition.number, "")
    known = {then, OffsetMetadata.of(now).topic_id} - {""}
    if topic_id and known - {topic_id}:
        raise TopicRecreated(partition, RECREATED, offset, cures.choose_offset(partition))
    return Move(partition, CommittedOffset(offset, str(OffsetMetadata(topic_id, offset))), now)


def carry_out(
    all_moves: Sequence[Move],
    target: OffsetStore,
    written: dict[Partition, CommittedOffset],
    *,
    force: bool,
    say: Callable[[str], object],
    done: str = "moved",
) -> int:
    """
    Store the offsets and report each move; return how many were refused. Raises Transient if a write fails.

    Args:
        written: receives what was stored.
        force: whether an offset may go back.
        done: begins the line of an offset that was stored.
    """
    refused = 0
    for move in all_moves:
        if move.is_done:
            say(f"same     {move}")
            continue
        try:
            store = target.reset if force else target.save
            store(move.partition, move.source.offset, move.source.metadata)
        except (Fenced, CorruptOffset) as error:
            refused += 1
            say(f"refused  {move}: {GOES_BACK if isinstance(error, Fenced) else REPLACES}")
        else:
            written[move.partition] = move.source
            say(f"{done:7}  {move}")
    return refused


def dry_run(all_moves: Sequence[Move], *, force: bool, say: Callable[[str], object]) -> int:
    """Carry out the moves in memory, and report what would happen; return how many would be refused."""
    there = {each.partition: each.target for each in all_moves if each.target is not None}
    # That store refuses what every store refuses.
    in_memory = open_store(Plugin("none"), StoreContext("", {}, planned=there))
    return carry_out(all_moves, in_memory, {}, force=force, say=say, done="to move")


def report_left(
    all_moves: Sequence[Move], partitions: Iterable[Partition], store: str, say: Callable[[str], object]
) -> None:
    """Report the partitions without an offset in the store, which do not move."""
    for partition in sorted(set(partitions).difference(each.partition for each in all_moves)):
        say(f"left     {partition}: no offset in {store}")
