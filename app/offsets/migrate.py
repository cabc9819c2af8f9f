"""Moves the offsets of a group from one store to another, and refuses what would do harm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.errors import CorruptOffset, Fenced
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore


@dataclass(frozen=True, slots=True)
class Move:
    """
    What happens to the offset of one partition.

    Args:
        partition: which partition.
        source: what the store holds that is moved from.
        target: what the other store holds; None where it holds nothing.
    """

    partition: Partition
    source: CommittedOffset
    target: CommittedOffset | None

    @property
    def is_done(self) -> bool:
        """Whether both hold the same offset already."""
        return self.target is not None and not self.target.corrupt and self.target.offset == self.source.offset

    @property
    def needs_force(self) -> bool:
        """Whether the offset would go back, or replace something that nobody can read."""
        return self.target is not None and (bool(self.target.corrupt) or self.target.offset > self.source.offset)

    def __str__(self) -> str:
        before = "nothing" if self.target is None else self.target.corrupt or str(self.target.offset)
        return f"{self.partition}: {before} → {self.source.offset}"


def moves(source: OffsetStore, target: OffsetStore, partitions: Sequence[Partition]) -> Iterator[Move]:
    """
    Yield what is to be moved, in order.

    Raises:
        CorruptOffset: what the source holds is not an offset.
        Unreachable, NotUsable: a store cannot be read.
    """
    there = target.load(partitions, stable=True)
    for partition, at in sorted(source.load(partitions, stable=True).items()):
        if at.corrupt:
            raise CorruptOffset(partition, at.corrupt)
        yield Move(partition, at, there.get(partition))


def carry_out(
    all_moves: Sequence[Move],
    target: OffsetStore,
    written: dict[Partition, CommittedOffset],
    *,
    force: bool,
    say: Callable[[str], object],
) -> int:
    """
    Store the offsets, and tell what became of each; return how many were refused.

    Args:
        all_moves: what is to be stored.
        target: where.
        written: takes in what was stored.
        force: whether an offset may go back.
        say: takes a line.

    Raises:
        Transient: the target cannot be written.
    """
    refused = 0
    for move in all_moves:
        if move.is_done:
            say(f"same     {move}")
            continue
        try:
            store = target.reset if force else target.save
            store(move.partition, move.source.offset, move.source.metadata)
        except (Fenced, CorruptOffset):
            refused += 1
            say(f"refused  {move}: it would go back; use --force to allow that")
        else:
            written[move.partition] = move.source
            say(f"moved    {move}")
    return refused


def tell_others(
    all_moves: Sequence[Move], partitions: Iterable[Partition], store: str, say: Callable[[str], object]
) -> None:
    """Tell which partitions a store has no offset of, so that nothing moves there."""
    for partition in sorted(set(partitions).difference(each.partition for each in all_moves)):
        say(f"left     {partition}: no offset in {store}")


def foretell(all_moves: Sequence[Move], *, force: bool, say: Callable[[str], object]) -> int:
    """Tell what `carry_out` would do, and change nothing; return how many would be refused."""
    for move in all_moves:
        if move.is_done:
            say(f"same     {move}")
        elif move.needs_force and not force:
            say(f"refused  {move}: it would go back; use --force to allow that")
        else:
            say(f"to move  {move}")
    return sum(move.needs_force for move in all_moves) if not force else 0
