"""The log of a service, as tests read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from app import events

Line = TypeVar("Line", bound=Mapping[str, Any])
NAMES = {event.name for event in events.every()}


def of_event(lines: Iterable[Line], event: str) -> list[Line]:
    """Return the lines of an event. A test that asks for a name that the product never logs would prove nothing."""
    assert event in NAMES, f"no event is called {event!r}"
    return [each for each in list(lines) if each["event"] == event]
