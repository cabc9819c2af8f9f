"""Moves a group's offsets between stores, and refuses to move an offset back unless forced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from app.errors import CorruptOffset, Fenced
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore
from app.offsets.metadata import OffsetMetadata

GOES_BACK = "it would go back; use --force to allow that"
REPLACES = "it would replace what is not an offset; use --force to allow that"


@dataclass(frozen=True, slots=True)
class Move:
    """
    The move of one partition's offset.

    Args:
        source: the offset to move.
        target: what the target store holds; None if it holds nothing.
    """

    partition: Partition
    source: CommittedOffset
    target: CommittedOffset | None

    @property
    def is_done(self) -> bool:
        """Whether both stores already hold the same offset."""
        return self.target is not None and not self.target.corrupt and self.target.offset == self.source.offset

    @property
    def refusal(self) -> str:
        """Why the move needs force; empty if it does not."""
        if self.target is None:
            return ""
        if self.target.corrupt:
            return REPLACES
        return GOES_BACK if self.target.offset > self.source.offset else ""

    def __str__(self) -> str:
        return f"{self.partition}: {self.target or 'nothing'} → {self.source}"


def moves(
    source: OffsetStore, target: OffsetStore, partitions: Sequence[Partition], *, between_clusters: bool
) -> Iterator[Move]:
    """
    Yield the moves, in order.

    Args:
        between_clusters: whether the target's cluster may lack the lines of the records before the offsets.

    Raises:
        CorruptOffset: the source holds something other than an offset.
    """
    there = target.load(partitions, stable=True)
    for partition, at in sorted(source.load(partitions, stable=True).items()):
        if at.corrupt:
            raise CorruptOffset(partition, at.corrupt)
        moving = replace(at, metadata=OffsetMetadata.beginning_anew(at)) if between_clusters else at
        yield Move(partition, moving, there.get(partition))


def carry_out(
    all_moves: Sequence[Move],
    target: OffsetStore,
    written: dict[Partition, CommittedOffset],
    *,
    force: bool,
    say: Callable[[str], object],
) -> int:
    """
    Store the offsets and report each move; return how many were refused.

    Args:
        written: receives what was stored.
        force: whether an offset may go back.
        say: prints a line.

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
        except (Fenced, CorruptOffset) as error:
            refused += 1
            say(f"refused  {move}: {GOES_BACK if isinstance(error, Fenced) else REPLACES}")
        else:
            written[move.partition] = move.source
            say(f"moved    {move}")
    return refused


def report_left(
    all_moves: Sequence[Move], partitions: Iterable[Partition], store: str, say: Callable[[str], object]
) -> None:
    """Report the partitions without an offset in the store, which do not move."""
    for partition in sorted(set(partitions).difference(each.partition for each in all_moves)):
        say(f"left     {partition}: no offset in {store}")


def dry_run(all_moves: Sequence[Move], *, force: bool, say: Callable[[str], object]) -> int:
    """Report what `carry_out` would do; return how many moves would be refused."""
    for move in all_moves:
        if move.is_done:
            say(f"same     {move}")
        elif move.refusal and not force:
            say(f"refused  {move}: {move.refusal}")
        else:
            say(f"to move  {move}")
    return sum(bool(move.refusal) for move in all_moves) if not force else 0
