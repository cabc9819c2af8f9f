"""What happened in a schedule, for a person to read: time, who, what, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple


class Line(NamedTuple):
    """One thing that happened."""

    at: float
    actor: str
    what: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.at:9.3f} s  {self.actor:<28} {self.what:<22} {self.outcome}"


class History:
    """Keeps lines only if somebody will read them: formatting them takes longer than the schedule."""

    def __init__(self, clock: Callable[[], float], *, kept: bool) -> None:
        self._clock = clock
        self.kept = kept
        self.lines: list[Line] = []

    def note(self, actor: str, what: str, outcome: str = "") -> None:
        if self.kept:
            self.lines.append(Line(self._clock(), actor, what, outcome))

    def told(self, *uninteresting: str) -> Iterator[str]:
        """Yield the lines, without those about requests that only ask."""
        for line in self.lines:
            if line.what not in uninteresting:
                yield str(line)
