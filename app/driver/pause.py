"""
A pause of the service: a mark in Kafka, which a running service sees within `round.interval`, a later one at its start.

    winnow-pause/1 since=1795328875831 by=ops-1

It is the offset of a group of its own (1: paused, 0: not), so it needs no topic and no volume. Brokers forget an offset
with its topic, so it stands beside each topic of the service, and one mark that is left counts. They also forget the
offsets of a group that nobody commits in for `offsets.retention.minutes` (7 days), so a paused service renews both the
mark and its own offsets (`app.driver.renewal`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from urllib.parse import quote, unquote

from app.errors import NotAllowed, PartitionError
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
        topics: the topics of the service.
        clock: seconds that never go back.
    """

    def __init__(self, store: OffsetStore, topics: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._places = [Partition(topic, 0) for topic in topics]
        self._clock = clock
        self._forbidden_until = clock()
        self._known: Pause | None = None
        """What was read last."""

    def read(self) -> Pause | None:
        """
        Return the pause; where we may not ask, the one that was read last. None where there is none.

        Raises:
            Unreachable, NotUsable: Kafka does not answer, or cannot serve us.
        """
        if self._clock() < self._forbidden_until:
            return self._known
        try:
            marks = self._marks()
        except NotAllowed:
            self._forbidden_until = self._clock() + AGAIN_SECONDS
        else:
            self._known = next(map(_parse, marks.values()), None)
        return self._known

    def _marks(self) -> dict[Partition, CommittedOffset]:
        """Return the marks that say that the service is paused."""
        found = self._store.load(self._places, stable=False)
        return {place: at for place, at in found.items() if at.offset == 1}

    def set(self, pause: Pause) -> None:
        """
        Pause the service; one of its topics may be missing now.

        Raises:
            Transient: it is unknown whether it is.
        """
        failures = []
        for place in self._places:
            try:
                self._store.reset(place, 1, f"{VERSION} since={pause.since} by={quote(pause.by, safe='')}")
            except PartitionError as error:
                failures.append(error)
        if len(failures) == len(self._places):
            raise failures[0]

    def clear(self) -> None:
        """
        Let the service go on.

        Raises:
            Transient: it is unknown whether it does.
            Unreachable, NotUsable: Kafka does not answer, or cannot serve us.
        """
        for place in self._marks():
            self._store.reset(place, 0, "")


def _parse(found: CommittedOffset) -> Pause:
    _, *words = found.metadata.split() or [""]
    values = dict(word.partition("=")[::2] for word in words)
    since = values.get("since", "")
    return Pause(int(since) if since.isdecimal() else 0, unquote(values.get("by", "")))
