"""
An operator's pause: a mark in Kafka that a running service reads within `round.interval`, and a new one at its start.

    winnow-pause/1 since=1795328875831 by=ops-1

The mark is a committed offset of a separate group (1: paused, 0: not), so it needs no topic or volume. Brokers delete
an offset together with its topic, so each topic of the service carries a mark, and any one of them counts. Brokers also
delete the offsets of a group that is idle for `offsets.retention.minutes` (7 days), so a paused service renews the mark
and its own offsets (`app.driver.renewal`).

A service that renews the mark may write just after an operator has ended the pause. So the end is kept at the sink's
mark (`winnow-pause/1 ended=1795328875831`), which no service writes: the operator's command writes the end and then
looks for marks, the service writes its marks and then looks for the end. One of them sees what the other wrote, and
removes the marks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from urllib.parse import quote, unquote

from app.config import Config
from app.driver.plan import CHECKS
from app.errors import NotAllowed, PartitionError, WinnowError
from app.headers import whole_number
from app.model import CommittedOffset, Guarantee, Partition, Pause
from app.offsets.contract import OffsetStore

GROUP = "{}.pause"
VERSION = "winnow-pause/1"
AGAIN_SECONDS = 300.0
"""When to ask again after Kafka denied reading the mark: each denied request takes five seconds."""


class PauseMark:
    """
    Reads and changes the mark, which is in `store` for the sink and for the service's other topics.

    A change raises Transient if its result is unknown, or NotAllowed.
    """

    def __init__(
        self, store: OffsetStore, sink: str, others: Iterable[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._sink, self._others = Partition(sink, 0), [Partition(topic, 0) for topic in others]
        self._clock = clock
        self._forbidden_until = clock()
        self._known: Pause | None = None

    def read(self) -> Pause | None:
        """Return the pause, None if there is none; if Kafka denies access, as last read."""
        if self._clock() < self._forbidden_until:
            return self._known
        try:
            self._known = self._stored()
        except NotAllowed:
            self._forbidden_until = self._clock() + AGAIN_SECONDS
        return self._known

    def _stored(self) -> Pause | None:
        found = self._load()
        ended = _words(found[self._sink]).get("ended", "") if self._sink in found else ""
        pauses = map(_parse, _paused(found).values())
        return next((each for each in pauses if not ended.isdecimal() or each.since > int(ended)), None)

    def _load(self) -> Mapping[Partition, CommittedOffset]:
        return self._store.load([self._sink, *self._others], stable=False)

    def set(self, pause: Pause) -> None:
        """Pause the service, even if one of its topics is missing now."""
        self._load()  # raises NotAllowed; a commit to a group that we may not even describe only times out
        self._mark([self._sink, *self._others], pause)

    def _mark(self, places: Collection[Partition], pause: Pause) -> None:
        failures: list[WinnowError] = []
        for place in places:
            try:
                self._store.reset(place, 1, f"{VERSION} since={pause.since} by={quote(pause.by, safe='')}")
            except (PartitionError, NotAllowed) as error:
                failures.append(error)
        if len(failures) == len(places):
            raise failures[0]

    def renew(self) -> None:
        """Store the pause again if it has not been ended."""
        if (pause := self._stored()) is not None:
            self._mark(self._others, pause)
            if self._stored() is None:
                self.clear()

    def clear(self) -> None:
        """End the pause, also if it is renewed just now."""
        failure: WinnowError | None = None
        while marks := _paused(self._load()):
            if failure is not None and self._sink in marks:
                raise failure
            ended = max(_parse(each).since for each in marks.values())
            try:
                self._store.reset(self._sink, 0, f"{VERSION} ended={ended}")
            except (PartitionError, NotAllowed) as error:
                failure = error  # perhaps the sink is missing: then it has no mark, and no service works without it
            for place in marks.keys() - {self._sink}:
                self._store.reset(place, 0, "")


def seconds_to_follow(config: Config, pause: Pause | None) -> float:
    """Return how soon a running service pauses, or resumes if None. An at-least-once round does not end early."""
    ends_late = pause is not None and config.delivery_guarantee is Guarantee.AT_LEAST_ONCE
    return config.round_interval * (CHECKS[config.delivery_guarantee] if ends_late else 1)


def _paused(found: Mapping[Partition, CommittedOffset]) -> dict[Partition, CommittedOffset]:
    return {place: at for place, at in found.items() if at.offset == 1}


def _parse(mark: CommittedOffset) -> Pause:
    values = _words(mark)
    return Pause(whole_number(values.get("since", "")) or 0, unquote(values.get("by", "")))


def _words(mark: CommittedOffset) -> dict[str, str]:
    _, *words = mark.metadata.split() or [""]
    return dict(word.partition("=")[::2] for word in words)
