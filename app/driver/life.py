"""Whether another run of the service is alive: its commits show it, as long as Kafka answers us and we can see them."""

from __future__ import annotations

import math
from collections.abc import Callable


class Sight:
    """
    For how long we have seen every commit: who is silent while Kafka does not answer us need not be gone.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.now = clock
        self._began: float | None = None
        """Since when every look was answered; None while none is."""

    def opens(self) -> None:
        """Take in that a look was answered."""
        if self._began is None:
            self._began = self.now()

    def is_lost(self) -> None:
        """Take in that Kafka does not answer."""
        self._began = None

    def seconds(self, since: float = -math.inf) -> float:
        """Return for how many seconds we have seen everything up to now, at most since a moment of the clock."""
        return 0.0 if self._began is None else self.now() - max(since, self._began)


class Life:
    """
    The life of other runs, as far as they show it; it ends when they have been silent for long enough.

    Args:
        sight: for how long we could see.
        gone_seconds: how long a silence ends it.
    """

    def __init__(self, sight: Sight, gone_seconds: float) -> None:
        self._sight = sight
        self._gone_seconds = gone_seconds
        self._signs: tuple[float, float] | None = None
        """When the first and the last sign of it were seen; None where it has ended, or never began."""

    def look(self, *, sign: bool) -> None:
        """Take in an answered look, and whether it has shown a sign of life."""
        first, last = self._signs or (math.inf, math.inf)
        if sign:
            self._signs = (first if self.goes_on else self._sight.now()), self._sight.now()
        elif self._sight.seconds(last) >= self._gone_seconds:
            self._signs = None

    @property
    def goes_on(self) -> bool:
        """Whether there was a sign of it, and no long silence since."""
        return self._signs is not None and self._sight.seconds(self._signs[1]) < self._gone_seconds

    @property
    def is_long(self) -> bool:
        """Whether it has gone on for as long as the silence would have to be that ends it."""
        return self._signs is not None and self._sight.seconds(self._signs[0]) >= self._gone_seconds
