"""Times and durations as operators write and read them, in one form everywhere."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
}
_NUMBER = r"(\d+\.?\d*|\.\d+)"
_PART = re.compile(rf"\s*{_NUMBER}\s*([a-z]+)\s*")
# As in kafka-consumer-groups: days, hours, minutes and seconds of ISO 8601, whose M before the T is a month.
_ISO = re.compile(rf"P(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?")
_AGO = re.compile(r"\s*(.*\S)\s+ago\s*")
_DATES = 10**7  # YYYYMMDD has eight digits; a smaller number is before each record, whatever its unit
# From 1973 to 2286. Fewer are a date or seconds, more are a date with its time, or microseconds.
_MILLISECONDS = range(10**11, 10**13)
_MINUTES = range(2000 * 10**8, 2100 * 10**8)  # YYYYMMDDhhmm, which would mean 1976
_YEAR = 31_556_952_000  # in milliseconds


def time_of(milliseconds: int) -> str:
    """Write a time as ISO 8601; `-` if it is -1, which in Kafka means none. A record may bear one that is no date."""
    if milliseconds == -1:
        return "-"
    try:
        moment = EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds_of(text: str) -> int:
    """
    Parse ISO 8601, in the local zone unless it has one, `10 minutes ago`, or milliseconds since the epoch.

    Raises:
        ValueError: it is none of these.
    """
    if text.isdecimal():
        if wrong := no_milliseconds(found := int(text)):
            raise ValueError(f"{wrong}: write 2026-11-22, or milliseconds")
        return found
    if past := _AGO.fullmatch(text):
        return ago(seconds_of(past[1]))
    try:
        return (datetime.fromisoformat(text).astimezone() - EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        msg = f"{text!r} is not a time: write 2026-11-22T06:00, 10 minutes ago, or milliseconds since the epoch"
        raise ValueError(msg) from None


def no_milliseconds(number: int) -> str:
    """Say why a number is a date, seconds or microseconds rather than milliseconds; empty if it may be such."""
    if number < _DATES or (number in _MILLISECONDS and number not in _MINUTES):
        return ""
    return f"{number} milliseconds after the epoch is in {1970 + number // _YEAR}"


def assumed(text: str) -> str:
    """Return the moment that a time without a zone means in the local zone; empty for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return ""
    local = moment.astimezone()
    return "" if moment.tzinfo or text.isdecimal() else f"{local.isoformat()} ({local.tzname()})"


def ago(seconds: float) -> int:
    """Return the time so many seconds ago, in milliseconds since the epoch."""
    return max(0, round((time.time() - seconds) * 1000))


def seconds_of(text: str) -> float:
    """Parse a duration: `90s`, `1h 30m`, `2 days`, `PT2H`, or a number of seconds. Raises ValueError for other text."""
    if re.fullmatch(rf"\s*{_NUMBER}\s*", text):
        return float(text)
    if (found := _ISO.fullmatch(text.upper())) and any(found.groups()):
        return sum(float(part or 0) * _UNITS[unit] for part, unit in zip(found.groups(), "dhms", strict=True))
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text or any(part[2] not in _UNITS for part in parts):
        raise ValueError(f"{text!r} is not a duration: write 90s, 10m, 1h or 2 days")
    return sum(float(part[1]) * _UNITS[part[2]] for part in parts)
