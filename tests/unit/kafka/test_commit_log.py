"""Kafka's topic of commits: the partition of a group, and whose commit a record is."""

from __future__ import annotations

import struct

import pytest

from app.kafka.commit_log import committed_by, place_of
from app.model import Partition


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


@pytest.mark.parametrize(
    ("group", "code"),
    [("", 0), ("a", 97), ("idc-cleansing", 244_420_467), ("polygenelubricants", -(2**31)), ("größe", 98_762_257)],
)
def test_the_place_of_a_group(group: str, code: int) -> None:
    """It follows from Java's hash code. The smallest one has no absolute value, and Kafka uses 0."""
    assert (0 if code == -(2**31) else abs(code)) % 50 == place_of(group, 50)


def test_whose_commit_it_is() -> None:
    """Both versions of a commit's key contain group, topic and partition."""
    for version in (0, 1):
        key = struct.pack(">h", version) + text("group") + text("raw") + struct.pack(">i", 7)
        assert ("group", Partition("raw", 7)) == committed_by(key)


@pytest.mark.parametrize("key", [b"", b"\0", struct.pack(">h", 2) + text("group"), struct.pack(">h", 1) + b"\0"])
def test_what_is_no_commit(key: bytes) -> None:
    """The group's own records and unknown ones are not commits."""
    assert "" == committed_by(key)[0]
