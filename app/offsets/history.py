"""What the offsets of a group were at earlier times, and how it goes back to one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from app import cures
from app.errors import NotUsable
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetHistory, OffsetStore, PastOffsets
from app.offsets.migrate import Move

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(past: PastOffsets) -> str:
    """Return an entry of the history as a line: its time, and the offset of each partition."""
    offsets = " ".join(f"{number}={offset}" for number, offset in sorted(past.offsets.items()))
    return f"{time_of(past.time)}  {offsets}"


def time_of(milliseconds: int) -> str:
    """Return a time as a person writes it, in UTC."""
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds_of(text: str) -> int:
    """
    Return the milliseconds since 1970 of a time as a person writes it; without a zone it is UTC.

    Raises:
        ValueError: it is no time.
    """
    if text.isdecimal():
        return int(text)
    moment = datetime.fromisoformat(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)


def moves_back(
    history: OffsetHistory, target: OffsetStore, partitions: Sequence[Partition], moment: int
) -> Iterator[Move]:
    """
    Yield what has to move so that each topic is as it was at a moment: as its newest entry that is not later says.

    Raises:
        NotUsable: a topic has no entry that old.
    """
    there = target.load(partitions, stable=True)
    for topic in sorted({each.topic for each in partitions}):
        found = history.history(topic, 1, until=moment)
        if not found:
            cure = f"{cures.history()} lists what there is"
            raise NotUsable(f"the history of {topic} does not go back to {time_of(moment)}", cure)
        for partition in sorted(each for each in partitions if each.topic == topic):
            if (offset := found[0].offsets.get(partition.number)) is not None:
                yield Move(partition, CommittedOffset(offset), there.get(partition))
