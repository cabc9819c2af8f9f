"""What stores outside Kafka have in common when something goes wrong: the errors that their contract names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from app.errors import CorruptOffset, Fenced, NotUsable, Transient, Unreachable
from app.model import CommittedOffset, Partition

LARGEST = 2**63 - 1
"""The largest offset there can be."""


def stored_offset(text: str, metadata: str, place: str) -> CommittedOffset:
    """
    Return what a store has found, whether or not that is an offset.

    Args:
        text: what stands where the offset should be.
        metadata: what stands beside it.
        place: where that is, as an operator of the store would name it.
    """
    if text.isascii() and text.isdecimal() and int(text) <= LARGEST:
        return CommittedOffset(int(text), metadata)
    return CommittedOffset.not_readable(f"{place} holds {text[:40]!r}, which is not an offset")


def refuse_to_go_back(partition: Partition, stored: CommittedOffset | None, offset: int) -> None:
    """
    Check that an offset may be saved over the stored one.

    Raises:
        Fenced: the stored offset is larger.
        CorruptOffset: what is stored is not an offset, so nobody knows.
    """
    if stored is None:
        return
    if stored.corrupt:
        raise CorruptOffset(partition, stored.corrupt, offset)
    if stored.offset > offset:
        what = f"another owner has committed up to {stored.offset}; this one stops, and nothing is lost"
        raise Fenced(partition, what, offset)


@contextlib.contextmanager
def saving(partition: Partition, offset: int) -> Iterator[None]:
    """Surround the storing of an offset: a store that does not answer leaves it unknown whether it was stored."""
    try:
        yield
    except (Unreachable, NotUsable) as error:
        raise Transient(partition, f"the offset may not have been stored: {error}", offset) from error
