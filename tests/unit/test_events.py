"""The events of the log: names that alerts can match, sentences that people can read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from app import events
from app.events import Event
from tests.support.logs import of_event

APP = Path(events.__file__).parent
SOURCES = [
    file.read_text()
    for folder in (APP, APP.parent / "docker")
    for file in folder.rglob("*.py")
    if file != Path(events.__file__)
]


def test_names_are_stable_words() -> None:
    """Each is in snake_case."""
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", event.key) for event in Event)


def test_each_event_is_logged_somewhere() -> None:
    """The list holds no event that the product never logs."""
    words = {word for source in SOURCES for word in re.findall(r"\b[A-Z_]+\b", source)}

    assert set() == {event.name for event in Event} - words


def test_there_is_no_other_way_to_log() -> None:
    """A line without a name would be invisible to alerts."""
    assert not [source for source in SOURCES if "get_logger" in source]


def test_a_line_has_the_sentence_as_its_message() -> None:
    """Beside the fields of the event."""
    with capture_logs() as logs:
        Event.RESUMED.log(paused_seconds=3)

    assert [{"event": "resumed", "log_level": "info", "message": "Resumed", "paused_seconds": 3}] == logs


def test_a_test_cannot_ask_for_an_event_that_does_not_exist() -> None:
    """Otherwise a renamed event would make `not logged` true for ever, and `logged` a wait without an end."""
    assert [{"event": "paused"}] == of_event([{"event": "paused"}, {"event": "resumed"}], "paused")
    with pytest.raises(AssertionError, match="no event is called 'still paused'"):
        of_event([], "still paused")
