"""Whether other runs of the service are alive, judged by their commits and by how long we could see every commit."""

from __future__ import annotations

import math
from collections.abc import Callable


class Sight:
    """How long every look has been answered. A run that is silent while Kafka is not responding may still be alive."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.now = clock
        self._began: float | None = None
        """When the current series of answered looks began; None while Kafka is not responding."""
        self.was_lost = False
        """Whether Kafka has ever not responded."""
        self.took = 0.0
        """How many seconds the last look took; its first answer is that old."""

    def opens(self, *, anew: bool = False) -> None:
        """Record an answered look. It begins a series if none goes on, and always if `anew`."""
        if anew or self._began is None:
            self._began = self.now()

    def lose(self) -> None:
        """Record that Kafka is not responding: until it does, no run counts as silent or absent."""
        self._began, self.was_lost = None, True

    def waited(self, since: float) -> None:
        """Record an answer for which we have waited since then: we saw nothing, and other runs may have waited, too."""
        now = self.now()
        self.took = now - since
        if self._began is not None:
            self._began = min(self._began + self.took, now)

    def seconds(self, since: float = -math.inf) -> float:
        """Return for how many seconds, at most from `since` on, every look has been answered."""
        return 0.0 if self._began is None else self.now() - max(since, self._began)

    def is_back_for_less_than(self, seconds: float) -> bool:
        """Return whether Kafka responds again, but has not done so for this long yet."""
        return self.was_lost and self._began is not None and self.seconds() < seconds


class Life:
    """Whether other runs have shown signs of life; silence of `gone_seconds` ends it."""

    def __init__(self, sight: Sight, gone_seconds: float) -> None:
        self._sight = sight
        self._gone_seconds = gone_seconds
        self._signs: tuple[float, float] | None = None
        """When the first and the last sign of life were seen; None before the first and after a long silence."""

    def observe(self, *, sign: bool, of_another: bool = False) -> None:
        """Record an answered look and whether it showed a sign of life, perhaps the first one of another run."""
        first, last = self._signs or (math.inf, math.inf)
        if sign:
            self._signs = (first if self.goes_on and not of_another else self._sight.now()), self._sight.now()
        elif self._sight.seconds(last) >= self._gone_seconds:
            self._signs = None

    @property
    def goes_on(self) -> bool:
        return self._signs is not None and self._sight.seconds(self._signs[1]) < self._gone_seconds

    @property
    def may_go_on(self) -> bool:
        """Whether they go on, or have not had the time since an outage to show that they do."""
        return self.goes_on or self._sight.is_back_for_less_than(self._gone_seconds)

    @property
    def is_long(self) -> bool:
        """Whether so much time lies between the first and the last sign; silence since then counts for nothing."""
        if self._signs is None:
            return False
        first, last = map(self._sight.seconds, self._signs)
        return first - last >= self._gone_seconds
