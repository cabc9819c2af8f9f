"""The log of a service, as tests read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Line = TypeVar("Line", bound=Mapping[str, Any])


def of_event(lines: Iterable[Line], event: str) -> list[Line]:
    """Return the lines of an event. A test that asks for a name that the product never logs would prove nothing."""
    from app.events import Event  # here: the harness also imports this beside older versions

    assert event in {each.key for each in Event}, f"no event is called {event!r}"
    return [each for each in list(lines) if each["event"] == event]
