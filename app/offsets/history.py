"""Formats a group's earlier offsets, and computes the moves that restore them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app import cures
from app.errors import NotUsable, TopicRecreated
from app.model import CommittedOffset, Partition, Topic, partitions_of
from app.offsets.contract import OffsetHistory, OffsetStore, PastOffsets
from app.offsets.metadata import OffsetMetadata
from app.offsets.migrate import Move
from app.times import time_of

RECREATED = "the topic was deleted and recreated, and the history belongs to the deleted one"


def written(past: PastOffsets) -> str:
    """Format an entry as a line: its time, and the offset of each partition."""
    offsets = " ".join(f"{number}={offset}" for number, offset in sorted(past.offsets.items()))
    return f"{time_of(past.time)}  {offsets}"


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
