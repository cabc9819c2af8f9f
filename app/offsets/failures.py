"""Errors in a store's configuration, and the checks and errors of the contract that stores outside Kafka share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from app.errors import CorruptOffset, Fenced, NotUsable, Transient, Unreachable
from app.headers import whole_number
from app.model import CommittedOffset, Partition

TIE = " at="
"""Begins the last word of tied metadata, which 0.2.0 passes over."""


class UnknownStore(ValueError):
    """No usable offset store has that name."""


class StoreOptionError(ValueError):
    """An option of the store is unknown, missing or wrong; the message names every problem."""


def tied(offset: int, metadata: str) -> str:
    """Return metadata that names its offset, for stores in which another tool may change only the number."""
    return f"{metadata}{TIE}{offset}"


def stored_offset(text: str, metadata: str, place: str) -> CommittedOffset:
    """
    Return what a store found, marked as corrupt if it is not an offset.

    Args:
        text: the value in the offset's place.
        metadata: the offset's metadata, ignored if it is tied to another offset; Winnow 0.2.0 tied it to none.
        place: the place as an operator of the store would name it.
    """
    if (offset := whole_number(text.lstrip("0") or text[:1])) is not None:
        known = metadata.removesuffix(tied(offset, ""))
        return CommittedOffset(offset, "" if TIE in known else known)
    return CommittedOffset.not_readable(f"{place} holds {text[:40]!r}, which is not an offset")


def refuse_to_go_back(partition: Partition, stored: CommittedOffset | None, offset: int) -> None:
    """Raise Fenced if the stored offset is larger, and CorruptOffset if what is stored is not an offset."""
    if stored is None:
        return
    if stored.corrupt:
        raise CorruptOffset(partition, stored.corrupt, offset)
    if stored.offset > offset:
        what = f"another owner has committed up to {stored.offset}; this one stops, and nothing is lost"
        raise Fenced(partition, what, offset)


@contextlib.contextmanager
def saving(partition: Partition, offset: int) -> Iterator[None]:
    """Surround a save: if the store does not answer, it is unknown whether the offset was stored."""
    try:
        yield
    except (Unreachable, NotUsable) as error:
        raise Transient(partition, f"the offset may not have been stored: {error}", offset) from error
