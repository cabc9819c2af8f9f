"""
The headers that Winnow adds to records, and how a reader tells them from those of the source records.

A line bears ours only: `source.flume.headers` can name none of them. A dead letter bears those of its source record,
whatever their names are, and ours behind them. Ours begin with the stage and the topic, so the last such pair is ours.
That holds for all that 0.1.0 and 0.2.0 have written, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.model import Partition

Header = tuple[str, bytes | None]
Headers = Sequence[Header]

TRANSACTION = "winnow.transaction"
"""Whose transaction began with this record, and at which committed offset: `TRANSACTIONAL-ID@OFFSET`."""
SOURCE = "winnow.source"
"""Which record a line was: `topic-partition@offset`."""
REPLAYS = "winnow.replays"
"""How often a record was replayed; a line that bears it comes from a replay."""
ERRORS = "__connect.errors."
"""What the headers that make a dead letter begin with; Kafka Connect's names, which existing tools read."""
OURS = ("winnow.", ERRORS)
"""What our names begin with."""
STAGE, TOPIC = f"{ERRORS}stage", f"{ERRORS}topic"
TOPIC_ID = f"{ERRORS}topic.id"
"""In which of the topics of that name the record was."""
_LARGEST = 2**63 - 1


def ours(headers: Headers) -> dict[str, str]:
    """Return the headers that Winnow has added to a line or a dead letter; none where somebody else made it one."""
    return as_text(headers[_begin(headers) :])


def theirs(headers: Headers) -> Headers:
    """Return the headers that the source record of a dead letter had."""
    return headers[: _begin(headers)] or [each for each in headers if not each[0].startswith(OURS)]


def origin_of(headers: Headers) -> tuple[Partition, int] | None:
    """Return the source record that a dead letter stands for, as partition and offset; None where it does not say."""
    own = ours(headers)
    number, offset = (whole_number(own.get(f"{ERRORS}{name}", "")) for name in ("partition", "offset"))
    topic = own.get(TOPIC, "")
    return (Partition(topic, number), offset) if topic and number is not None and offset is not None else None


def as_text(headers: Headers) -> dict[str, str]:
    """Return headers as text, the last of each name; bytes that are not UTF-8 are escaped."""
    return {name: (value or b"").decode(errors="backslashreplace") for name, value in headers}


def whole_number(text: str) -> int | None:
    """Return the offset, partition or count that a text is; None where it is none, or larger than any."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_LARGEST))):
        return None
    return number if (number := int(text)) <= _LARGEST else None


def _begin(headers: Headers) -> int:
    """Return where ours begin: first in a line, behind the last header where another tool wrote a stage."""
    names = [name for name, _ in headers]
    if STAGE not in names:
        return 0
    last = len(names) - 1 - names[::-1].index(STAGE)
    return last if names[last + 1 : last + 2] == [TOPIC] else len(names)
