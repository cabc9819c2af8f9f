"""
The headers that Winnow adds to records, and how to tell them from those of the source records.

A line's `winnow.*` headers are all ours: `source.flume.headers` cannot name one. A dead letter has the headers of its
source record, whatever their names, followed by ours. Ours begin with the stage and the topic, so the last such pair
marks where they start. That also holds for records written by 0.1.0 and 0.2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from app.model import Partition

Header = tuple[str, bytes | None]
Headers = Sequence[Header]

TRANSACTION = "winnow.transaction"
"""Marks the first line of a transaction, or each: `TRANSACTIONAL-ID@OFFSET`, with the committed offset it starts at."""
SOURCE = "winnow.source"
"""A line's source record: `topic-partition@offset`."""
REPLAYS = "winnow.replays"
"""How often a record was replayed; only a replay's line has it."""
ERRORS = "__connect.errors."
"""The prefix of a dead letter's headers: Kafka Connect's names, which existing tools read."""
OURS = ("winnow.", ERRORS)
STAGE, TOPIC = f"{ERRORS}stage", f"{ERRORS}topic"
TOPIC_ID = f"{ERRORS}topic.id"
"""The source topic's id, which tells topics of the same name apart."""
LARGEST = 2**63 - 1
"""The largest offset."""


def ours(headers: Headers) -> dict[str, str]:
    """Return the headers that Winnow added to a line or a dead letter; none if another tool wrote it."""
    return as_text(headers[_begin(headers) :])


def theirs(headers: Headers) -> Headers:
    """Return the headers that the source record of a dead letter had."""
    return headers[: _begin(headers)] or [each for each in headers if not each[0].startswith(OURS)]


def origin_of(headers: Headers) -> tuple[Partition, int] | None:
    """Return the partition and offset of a dead letter's source record; None if the headers do not say."""
    own = ours(headers)
    number, offset = (whole_number(own.get(f"{ERRORS}{name}", "")) for name in ("partition", "offset"))
    topic = own.get(TOPIC, "")
    return (Partition(topic, number), offset) if topic and number is not None and offset is not None else None


def cut_from(value: bytes | None) -> str:
    """Return how the message of a dead letter ends whose value was cut from this one."""
    return f"cut from {len(value or b'')} bytes, SHA-256 {sha256(value or b'').hexdigest()}"


def as_text(headers: Headers) -> dict[str, str]:
    """Return headers as text, the last of each name; bytes that are not UTF-8 are escaped."""
    return {name: (value or b"").decode(errors="backslashreplace") for name, value in headers}


def whole_number(text: str) -> int | None:
    """Return text as an offset, partition or count; None if it is not one, or exceeds 64 bits."""
    # Python refuses to convert thousands of digits, and reads those of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST))):
        return None
    return number if (number := int(text)) <= LARGEST else None


def _begin(headers: Headers) -> int:
    """Return where ours begin: at 0 in a line; after the last header if another tool wrote the stage."""
    names = [name for name, _ in headers]
    if STAGE not in names:
        return 0
    last = len(names) - 1 - names[::-1].index(STAGE)
    return last if names[last + 1 : last + 2] == [TOPIC] else len(names)
