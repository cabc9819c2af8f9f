"""
An operator's pause: a mark in Kafka that a running service reads within `round.interval`, and a new one at its start.

    winnow-pause/1 since=1795328875831 by=ops-1

The mark is a committed offset of a separate group (1: paused, 0: not), so it needs no topic or volume. Brokers delete
an offset together with its topic, so each topic of the service carries a mark, and any one of them counts. Brokers also
delete the offsets of a group that is idle for `offsets.retention.minutes` (7 days), so a paused service renews the mark
and its own offsets (`app.driver.renewal`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from urllib.parse import quote, unquote

from app.config import Config
from app.driver.round import CHECKS
from app.errors import NotAllowed, PartitionError
from app.model import CommittedOffset, Guarantee, Partition, Pause
from app.offsets.contract import OffsetStore

GROUP = "{}.pause"
VERSION = "winnow-pause/1"
AGAIN_SECONDS = 300.0
"""When to ask again after Kafka denied reading the mark: each denied request takes five seconds."""


class PauseMark:
    """Reads and changes the mark, which is in `store` for each of the service's topics."""

    def __init__(self, store: OffsetStore, topics: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._places = [Partition(topic, 0) for topic in topics]
        self._clock = clock
        self._forbidden_until = clock()
        self._known: Pause | None = None

    def read(self) -> Pause | None:
        """
        Return the pause, or the last one read if Kafka denies access. None if the service is not paused.

        Raises:
            Unreachable, NotUsable: Kafka is not responding or refuses.
        """
        if self._clock() < self._forbidden_until:
            return self._known
        try:
            self._known = self._stored()
        except NotAllowed:
            self._forbidden_until = self._clock() + AGAIN_SECONDS
        return self._known

    def _stored(self) -> Pause | None:
        return next(map(_parse, self._marks().values()), None)

    def _marks(self) -> dict[Partition, CommittedOffset]:
        found = self._store.load(self._places, stable=False)
        return {place: at for place, at in found.items() if at.offset == 1}

    def set(self, pause: Pause) -> None:
        """Pause the service, even if one of its topics is missing now. Raises Transient if the result is unknown."""
        failures = []
        for place in self._places:
            try:
                self._store.reset(place, 1, f"{VERSION} since={pause.since} by={quote(pause.by, safe='')}")
            except PartitionError as error:
                failures.append(error)
        if len(failures) == len(self._places):
            raise failures[0]

    def renew(self) -> None:
        """Store the pause again, unless an operator has just ended it. Raises what `read` and `set` raise."""
        if (pause := self._stored()) is not None:
            self.set(pause)

    def clear(self) -> None:
        """End the pause, also if it is renewed just now. Raises what `read` raises, and Transient if unsure."""
        while marks := self._marks():
            for place in marks:
                self._store.reset(place, 0, "")


def seconds_to_follow(config: Config, pause: Pause | None) -> float:
    """Return how soon a running service pauses, or resumes if None. An at-least-once round does not end early."""
    ends_late = pause is not None and config.delivery_guarantee is Guarantee.AT_LEAST_ONCE
    return config.round_interval * (CHECKS[config.delivery_guarantee] if ends_late else 1)


def _parse(found: CommittedOffset) -> Pause:
    _, *words = found.metadata.split() or [""]
    values = dict(word.partition("=")[::2] for word in words)
    since = values.get("since", "")
    return Pause(int(since) if since.isdecimal() else 0, unquote(values.get("by", "")))
