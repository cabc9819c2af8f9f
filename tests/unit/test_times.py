"""Times and durations are written in one way everywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from app.times import ago, assumed, milliseconds_of, seconds_of, time_of

NOW = 1_795_327_923.123


@pytest.fixture(autouse=True)
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    monkeypatch.setattr("app.times.time.time", lambda: NOW)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-22T06:12:03.123Z",
        "2026-11-22 07:12:03.123",
        "2026-11-22T08:12:03.123+02:00",
        "1795327923123",
        "0 seconds ago",
    ],
)
def test_a_time_can_be_written_in_several_ways(text: str) -> None:
    """A listed time can be given back; without a zone it is local."""
    assert 1_795_327_923_123 == milliseconds_of(text)
    assert time_of(1_795_327_923_123) == "2026-11-22T06:12:03.123Z"


@pytest.mark.parametrize(
    ("milliseconds", "shown"), [(-1, "-"), (2**63 - 1, "9223372036854775807 ms"), (-(10**15), "-1000000000000000 ms")]
)
def test_a_timestamp_that_is_no_date(milliseconds: int, shown: str) -> None:
    """A producer may write any, such as microseconds; -1 is Kafka's word for none."""
    assert shown == time_of(milliseconds)


def test_the_first_milliseconds_that_are_a_time() -> None:
    assert milliseconds_of("1" + 11 * "0") == 10**11


@pytest.mark.parametrize("milliseconds", [0, 200 * 10**9 - 1, 210 * 10**9, 10**13 - 1])
def test_other_milliseconds_are_taken(milliseconds: int) -> None:
    assert milliseconds == milliseconds_of(str(milliseconds))


@pytest.mark.parametrize(
    ("text", "seconds"), [("10 minutes ago", 600), ("1h ago", 3_600), ("2 days  ago", 172_800), ("PT1H ago", 3_600)]
)
def test_how_long_ago(text: str, seconds: int) -> None:
    """Any duration can be."""
    assert round((NOW - seconds) * 1000) == milliseconds_of(text) == ago(seconds)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("yesterday", "'yesterday' is not a time: write 2026-11-22T06:00, 10 minutes ago, or"),
        ("2026-13-01", "'2026-13-01' is not a time"),
        ("soon ago", "'soon' is not a duration"),
        ("1795327923", "1795327923 milliseconds after the epoch is in 1970: write 2026-11-22"),
        ("20261122", "is in 1970"),
        ("202611220600", "is in 1976"),
        ("20261122060000", "20261122060000 milliseconds after the epoch is in 2612: write 2026-11-22"),
        ("1795327923123000", "is in 58861"),
        ("1795327923123000000", "is in 56893647"),
    ],
)
def test_what_is_no_time(text: str, answer: str) -> None:
    """Seconds, micro- and nanoseconds since the epoch, or a date without dashes, would silently mean another year."""
    with pytest.raises(ValueError, match=f"^{answer}" if answer[0] == "'" else answer):
        milliseconds_of(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-11-25 10:00", "2026-11-25T10:00:00+01:00 (CET)"),
        ("2026-07-25", "2026-07-25T00:00:00+02:00 (CEST)"),
        ("2026-11-25T10:00Z", ""),
        ("1795327923123", ""),
        ("1h ago", ""),
    ],
)
def test_how_a_time_without_a_zone_is_read(text: str, said: str) -> None:
    """Nobody knows which zone a machine has."""
    assert said == assumed(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("90s", 90),
        ("5m", 300),
        ("2h", 7_200),
        ("2 days", 172_800),
        ("1 hour 30 minutes", 5_400),
        ("1h30m", 5_400),
        ("1w", 604_800),
        ("90", 90),
        (" .5 s ", 0.5),
        ("PT2H", 7_200),
        ("p1dt30m", 88_200),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """As in the configuration, in words, and as in kafka-consumer-groups."""
    assert seconds == seconds_of(text)


@pytest.mark.parametrize("text", ["soon", "P", "PT", "P1M", "-2h", "2x", "1h x", "x 1h", "", "5M"])
def test_what_is_no_duration(text: str) -> None:
    """An invalid duration is an error, not zero."""
    with pytest.raises(ValueError, match="is not a duration: write 90s, 10m, 1h or 2 days"):
        seconds_of(text)
