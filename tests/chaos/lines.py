"""
The numbered lines: usual ones, bad ones, and odd ones that a broker may refuse.

The key of a record is `stream:number`, and the value holds both too. So a reader knows each line again, whatever became
of it.
"""

from __future__ import annotations

import base64
import random
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.independent import Headers, cleansed, line

PADDING = re.compile(rb"x{100,}|~[\w-]{100,}")
URL = re.compile(rb"http://x\.cn/(\d+)/(\d+)")
NOW = 0
"""The timestamp by which confluent_kafka means the present."""
YEAR_MS = 365 * 86_400_000
LARGE_BYTES = 5_000_000
"""Compressed it fits every topic; uncompressed it is larger than what librdkafka takes by default."""
LONG_BYTES = 50_000
"""Before they are encoded as text, which no broker can compress."""


class Source(NamedTuple):
    """A record as the load writes it: value, key, and timestamp in milliseconds."""

    value: bytes
    key: bytes | None
    timestamp: int = NOW


class Odd(NamedTuple):
    """
    A kind of line that a broker may refuse.

    Args:
        per_second: how many of them to write, over all partitions.
        bad: whether such a line must be rejected; else it may be in the sink or among the dead letters.
        record: the record of a stream and a number.
    """

    per_second: float
    bad: bool
    record: Callable[[int, int], Source]


def key(stream: int, number: int) -> bytes:
    """Return the key of a record."""
    return b"%d:%d" % (stream, number)


def bad_line(stream: int, number: int) -> bytes:
    """Return a line that must be rejected: no marker, too few fields, or a date that does not exist."""
    match number % 3:
        case 0:
            return _without_marker(stream, number)
        case 1:
            return b"<<<!>>>bad<<<!>>>,<<<!>>>%d/%d<<<!>>>" % (stream, number)
    return line(number, stream).replace(b"20171112", b"20170231")


def _without_marker(stream: int, number: int) -> bytes:
    return b"bad %d/%d" % (stream, number)


def _of_next_year(stream: int, number: int) -> Source:
    return Source(line(number, stream), key(stream, number), int(time.time() * 1000) + YEAR_MS)


def _large(stream: int, number: int) -> Source:
    return Source(_without_marker(stream, number) + b"x" * LARGE_BYTES, key(stream, number))


def _without_key(stream: int, number: int) -> Source:
    return Source(line(number, stream), None)


def _long(stream: int, number: int) -> Source:
    url = b"http://x.cn/%d/%d" % (stream, number)
    noise = base64.urlsafe_b64encode(random.Random(number).randbytes(LONG_BYTES)).rstrip(b"=")
    return Source(line(number, stream).replace(url, url + b"~" + noise), key(stream, number))


OF_NEXT_YEAR = Odd(4, bad=False, record=_of_next_year)
LARGE = Odd(1, bad=True, record=_large)
WITHOUT_KEY = Odd(4, bad=False, record=_without_key)
LONG = Odd(4, bad=False, record=_long)


def forged(group: str, topic: str, partition: int) -> Headers:
    """Return headers such as the service writes, which a record may bear as well, and its dead letter keeps."""
    told = {"stage": "VALUE_CONVERTER", "topic": topic, "partition": str(partition), "offset": "x"}
    return [
        ("winnow.transaction", f"winnow/{group}/{topic}/{partition}@x".encode()),
        ("winnow.replays", b"7"),
        *((f"__connect.errors.{name}", text.encode()) for name, text in told.items()),
    ]


def numbered(name: bytes | None, value: bytes) -> tuple[int, int]:
    """Return stream and number of a record in the output; by its value where it has no key."""
    if name is not None:
        stream, _, number = name.partition(b":")
        return int(stream), int(number)
    found = URL.search(value)
    assert found, f"a record without a key that is no line of ours: {value[:200]!r}"
    return int(found[1]), int(found[2])


def is_cleansed(value: bytes, stream: int, number: int) -> bool:
    """Return whether a value is what the service must make of a line."""
    return PADDING.sub(b"", value) == cleansed(number, stream)


def is_unchanged(value: bytes, stream: int, number: int) -> bool:
    """Return whether a value is a line as it was written; a large one may be cut."""
    lines = bad_line(stream, number), _without_marker(stream, number), line(number, stream)
    return PADDING.sub(b"", value) in lines
