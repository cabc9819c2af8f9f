"""Records of Kafka's topic of transactions, in both versions of their format."""

from __future__ import annotations

import struct

import pytest

from app.errors import NotUsable, Unreachable
from app.facts import OpenTransaction
from app.kafka.topics import KafkaTopics
from app.kafka.transaction_log import TOPIC, KafkaTransactionLog, transaction
from app.model import Partition, Topic, Watermarks, transactional_id

SOURCE = Partition("raw", 7)
BEGAN = 1_795_000_000_000


def head(version: int, state: int) -> bytes:
    return struct.pack(">hqhib", version, 42, 3, 60_000, state)


TIMES = struct.pack(">qq", BEGAN + 5, BEGAN)
OLD = struct.pack(">i", 1) + struct.pack(">h", 5) + b"clean" + struct.pack(">iii", 2, 0, 1)
OLD_NONE = struct.pack(">i", -1)
# A name of 200 characters has a length of two bytes, and each list ends with its tags.
NEW = b"\x02" + b"\xc9\x01" + b"c" * 200 + b"\x03" + struct.pack(">ii", 0, 1) + b"\x01\x09\x02ab"

# A name of 127 characters has a length of two bytes, too: 128.
EDGE = b"\x02" + b"\x80\x01" + b"c" * 127 + b"\x01" + b"\x00"


@pytest.mark.parametrize(
    "value",
    [
        head(0, 1) + OLD + TIMES,
        head(0, 1) + OLD_NONE + TIMES,
        head(1, 1) + NEW + TIMES + b"\x00",
        head(1, 1) + EDGE + TIMES + b"\x00",
        head(1, 1) + b"\x00" + TIMES + b"\x00",
        head(1, 1) + b"\x01" + TIMES + b"\x00",
    ],
    ids=[
        "old",
        "old without partitions",
        "new",
        "new, 127 characters",
        "new without partitions",
        "new with an empty list",
    ],
)
def test_what_a_record_says(value: bytes) -> None:
    """State, start, producer and epoch, whatever partitions come before them."""
    assert OpenTransaction(SOURCE, "ongoing", BEGAN, 42, 3) == transaction(SOURCE, value)


def test_the_states() -> None:
    """They have the order of Kafka's numbers."""
    found = [transaction(SOURCE, head(0, state) + OLD + TIMES) for state in range(8)]

    assert ["empty", "ongoing", "committing", "aborting", "committed", "aborted", "dead", "fencing"] == [
        each and each.state for each in found
    ]


def test_a_record_that_deletes() -> None:
    """Kafka deletes unused ids."""
    assert transaction(SOURCE, None) is None


@pytest.mark.parametrize("value", [head(0, 1), head(2, 1) + OLD + TIMES, head(0, 99) + OLD + TIMES, b"x"])
def test_what_nobody_can_read(value: bytes) -> None:
    """A newer format must not look as if nothing were open."""
    with pytest.raises(
        NotUsable, match="raw-7 in a format that this version of Winnow does not support: use Kafka's own"
    ):
        transaction(SOURCE, value)


def key(identity: str, version: int = 0) -> bytes:
    return struct.pack(">hh", version, len(identity)) + identity.encode()


@pytest.mark.parametrize(
    ("identity", "source"),
    [
        (transactional_id("a/b", SOURCE), SOURCE),
        (transactional_id("a", SOURCE), None),
        (transactional_id("a/b/c", SOURCE), None),
        ("somebody", None),
        ("some/body", None),
        ("winnow/a/b/raw/x", None),
        ("winnow/a/b/raw/" + "9" * 5_000, None),
    ],
)
def test_whose_it_is(identity: str, source: Partition | None) -> None:
    """A group's name may contain slashes. Only the group's own ids count."""
    log = KafkaTransactionLog({"bootstrap.servers": "127.0.0.1:1"}, "a/b")

    assert source == log.source_of(key(identity))
    assert log.source_of(key(identity, 1)) is None


@pytest.mark.parametrize("silent", ["watermarks", "offsets_at"])
def test_a_partition_that_does_not_answer_is_not_empty(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its open transactions would be missed."""
    topic, marks = Topic(TOPIC, "id", 2), Watermarks(0, 0, 0)
    partitions = [Partition(TOPIC, number) for number in range(2)]
    answers: dict[str, dict[Partition, Watermarks | None]]
    answers = {"watermarks": dict.fromkeys(partitions, marks), "offsets_at": dict.fromkeys(partitions)}
    answers[silent].popitem()
    monkeypatch.setattr(KafkaTopics, "source_topics", lambda *_: {TOPIC: topic})
    for name, answer in answers.items():
        monkeypatch.setattr(KafkaTopics, name, lambda *_, answer=answer: answer)

    with pytest.raises(Unreachable, match="1 partitions of __transaction_state are unavailable"):
        KafkaTransactionLog({"bootstrap.servers": "127.0.0.1:1"}, "g").open_transactions(0)
