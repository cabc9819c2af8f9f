"""Whether the service runs: who changes offsets while it does, loses to its next commit, in silence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.driver.clients import Clients
from app.driver.owners import SIGN_OF_LIFE_SECONDS
from app.errors import NotUsable
from app.model import NOBODY, CommittedOffset, Partition
from app.offsets.metadata import OffsetMetadata

CURE = "stop it, and try again"

Watch = Callable[[float], Partition | None]
"""Waits for so many seconds, or until it sees a commit that repeats an offset; returns whose."""


def refuse_running_service(clients: Clients, partitions: Sequence[Partition], watch: Watch) -> None:
    """
    Watch for a moment; nothing is disturbed.

    Args:
        clients: Kafka, as the driver sees it.
        partitions: those whose offsets are watched.
        watch: waits, and shows commits that repeat an offset where the store lets us see them.

    Raises:
        ForeignMember: somebody consumes in the group.
        NotUsable: an offset is committed, so the service runs.
    """
    clients.group.refuse_foreign_members()
    before = clients.offsets.load(partitions, stable=False)
    renewed = watch(SIGN_OF_LIFE_SECONDS)
    now = clients.offsets.load(partitions, stable=False)
    moved = [each for each in partitions if now.get(each) != before.get(each)]
    if (partition := next(iter(moved), renewed)) is not None:
        raise NotUsable(f"{_who(now.get(partition))} runs: it has committed {partition} while we looked", CURE)


def refuse_overwritten(
    clients: Clients, written: Mapping[Partition, CommittedOffset], sleep: Callable[[float], object]
) -> None:
    """
    Look again at offsets that were set: a service that no other sign has told of writes over them.

    Raises:
        NotUsable: somebody has.
    """
    sleep(SIGN_OF_LIFE_SECONDS)
    now = clients.offsets.load(written, stable=False)
    for partition, set_to in written.items():
        if (found := now.get(partition)) != set_to:
            there = "nothing" if found is None else found.corrupt or found.offset
            cause = f"{_who(found)} runs: {partition} was set to {set_to.offset}, and now {there} stands there"
            raise NotUsable(cause, CURE)


def _who(committed: CommittedOffset | None) -> str:
    owner = OffsetMetadata.parse(committed.metadata if committed else "").owner
    return "the service" if owner == NOBODY else str(owner)
