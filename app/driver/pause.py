"""
A pause of the service: a mark in Kafka, which a running service sees within `round.interval`, a later one at its start.

    winnow-pause/1 since=1795328875831 by=ops-1

It is the offset of a group of its own (1: paused, 0: not), so it needs no topic and no volume. Brokers forget the
offsets of a group that nobody commits in for `offsets.retention.minutes` (7 days), so a paused service renews both the
mark and its own offsets (`app.driver.renewal`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import quote, unquote

from app.errors import NotAllowed
from app.model import CommittedOffset, Partition, Pause
from app.offsets.contract import OffsetStore

GROUP = "{}.pause"
VERSION = "winnow-pause/1"


AGAIN_SECONDS = 300.0
"""After so long it is looked again whether we may read the mark: where we may not, the question takes five seconds."""


class PauseMark:
    """
    Reads the mark, and changes it.

    Args:
        store: the offsets of the group that holds it.
        topic: a topic that exists as long as the service is used.
        clock: seconds that never go back.
    """

    def __init__(self, store: OffsetStore, topic: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._place = Partition(topic, 0)
        self._clock = clock
        self._forbidden_until = clock()

    def read(self) -> Pause | None:
        """
        Return the pause; None where there is none, and where we may not ask.

        Raises:
            Unreachable, NotUsable: Kafka does not answer, or cannot serve us.
        """
        if self._clock() < self._forbidden_until:
            return None
        try:
            found = self._store.load([self._place], stable=False).get(self._place)
        except NotAllowed:  # who was not allowed to ask was never paused
            self._forbidden_until = self._clock() + AGAIN_SECONDS
            return None
        return _parse(found) if found is not None and found.offset == 1 else None

    def set(self, pause: Pause) -> None:
        """
        Pause the service.

        Raises:
            Transient: it is unknown whether it is.
        """
        self._store.reset(self._place, 1, f"{VERSION} since={pause.since} by={quote(pause.by, safe='')}")

    def clear(self) -> None:
        """Let the service go on; raises what `set` does."""
        self._store.reset(self._place, 0, "")


def _parse(found: CommittedOffset) -> Pause:
    _, *words = found.metadata.split() or [""]
    values = dict(word.partition("=")[::2] for word in words)
    since = values.get("since", "")
    return Pause(int(since) if since.isdecimal() else 0, unquote(values.get("by", "")))
