"""
Verifies from outside, even during a run, that cleansing lost, duplicated, reordered and altered nothing.

It shares no code with the service: it knows the recipe of the source topic, and reads what any other consumer would
read (read_committed).
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__
from numpy.typing import NDArray

from app.demo.lines import GeneratedRecord, Recipe

BATCH = 10_000
DIGITS = 9
ANSWER_SECONDS = 30.0
FOREIGN = (-1, -1)
HEADER = "__connect.errors."
CONSUMER: dict[str, str | int | float | bool] = {
    "group.id": "winnow-verification",  # never joined, never committed to
    "log_level": 0,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.queue.backoff.ms": 2,
    "queued.max.messages.kbytes": 65_536,
}


class VerificationFailed(Exception):
    """The verification cannot read its topics."""


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """
    The result of a verification.

    Args:
        out: the number of records seen in the sink topic.
        dead: the number of records seen in the dead-letter topic.
        dead_by_reason: the dead letters by the reason in their headers.
        faults: the number of each kind; one without any is absent:
            lost: records seen in neither topic.
            doubled: records seen more than once, in either topic.
            out_of_order: records first seen after a later one of their source partition, within a partition of a topic.
            wrong_value: cleansed lines, or original bytes of dead letters, that differ from the recipe.
            wrong_topic: good lines among the dead letters, and bad lines in the sink.
            wrong_partition: records of the sink not in source partition mod number of sink partitions.
            wrong_timestamp: records whose timestamp differs from that of their source record.
            wrong_header: dead letters whose headers lack their origin, the expected reason or a message.
            foreign: records whose key belongs to no record of the recipe.
            held_back: offsets that read_committed readers cannot reach because of an open transaction.
    """

    out: int
    dead: int
    dead_by_reason: Mapping[str, int]
    faults: Mapping[str, int]


NOTHING_SEEN = VerificationResult(0, 0, {}, {})


class Verification:
    """
    Compares a sink and a dead-letter topic with the recipe of the source topic.

    Call `poll()` repeatedly while the service runs and `finish()` after it has ended, or `finish()` alone.
    """

    def __init__(self, bootstrap: str, recipe: Recipe, *, source: str, sink: str, dead_letters: str) -> None:
        self._recipe, self._source, self._sink, self._dead_letters = recipe, source, sink, dead_letters
        self._bootstrap = bootstrap
        self._admin = self._connect()
        sizes = {topic: _partitions(self._admin, topic) for topic in (sink, dead_letters)}
        self._sink_partitions = sizes[sink]
        self._ends = {(topic, number): -1 for topic, size in sizes.items() for number in range(size)}
        self._books = {b"%d" % number: _Book(recipe, number) for number in range(recipe.partitions)}
        self._last: dict[_Stream, int] = defaultdict(lambda: -1)
        self._out = self._dead = 0
        self._reasons: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._consumer = Consumer({**CONSUMER, "bootstrap.servers": bootstrap})
        self._consumer.assign([Place(*place, OFFSET_BEGINNING) for place in self._ends])

    def _connect(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self, timeout: float = 0.1) -> int:
        """Read and check at most one batch of new records; return how many there were."""
        rows: dict[_Stream, list[_Row]] = defaultdict(list)
        messages = self._consumer.consume(BATCH, timeout)
        for message in messages:
            if error := message.error():
                self._note_end(message, error)
                continue
            partition, sequence = self._place(message.key())
            stream = message.topic(), message.partition(), partition
            rows[stream].append((sequence, hash(message.value()), message.timestamp()[1]))
            if partition >= 0 and stream[0] == self._dead_letters:
                self._judge_headers(message, partition, sequence)
        for stream, found in rows.items():
            self._judge(stream, found)
        return len(messages)

    def finish(self, timeout: float = 60) -> VerificationResult:
        """
        Read both topics to their current ends, and return the result.

        A partition's end is reached when Kafka reports PARTITION_EOF. Offsets still held back by an open transaction
        when nothing more has come for the timeout count as a fault.
        """
        deadline = time.monotonic() + timeout
        wanted = self._watermarks(deadline)
        while time.monotonic() < deadline and any(self._ends[place] < end for place, end in wanted.items()):
            if self.poll():
                deadline = time.monotonic() + timeout
        held_back = sum(max(0, end - max(0, self._ends[place])) for place, end in wanted.items())
        return self.result(held_back)

    def result(self, held_back: int = 0) -> VerificationResult:
        """Return the current result. While the service runs, records that have not arrived count as lost."""
        missing = self._recipe.count - self._out - self._dead
        faults = {**self._faults, "lost": missing, "held_back": held_back}
        found = {kind: count for kind, count in faults.items() if count}
        return VerificationResult(self._out, self._dead, dict(self._reasons), found)

    def _note_end(self, message: Message, error: KafkaError) -> None:
        """Record how far a partition has been read. Connection errors without a topic resolve by themselves."""
        place: Any = message.topic(), message.partition()
        if place[0] is None:
            return
        if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - it is public
            raise VerificationFailed(f"The verification cannot read {place[0]} [{place[1]}]: {error.str()}")
        self._ends[place] = message.offset() or 0

    def _place(self, key: str | bytes | None) -> tuple[int, int]:
        """Return the source partition and sequence number in a key; FOREIGN if it names no record of the recipe."""
        partition, _, number = key.partition(b":") if isinstance(key, bytes) else (b"", b"", b"")
        book = self._books.get(partition)
        if book is None or len(number) != DIGITS or not number.isdigit() or (sequence := int(number)) >= book.size:
            return FOREIGN
        return book.partition, sequence

    def _judge_headers(self, message: Message, partition: int, sequence: int) -> None:
        raw: Any = message.headers() or ()
        headers = {name.removeprefix(HEADER): value or b"" for name, value in raw}
        reason = headers.get("exception.class.name", b"").decode(errors="replace")
        self._reasons[reason] += 1
        origin = [self._source.encode(), b"%d" % partition, b"%d" % sequence]
        told = [headers.get(name) for name in ("topic", "partition", "offset")]
        right = told == origin and reason == self._books[b"%d" % partition].reasons.get(sequence)
        self._faults["wrong_header"] += not (right and headers.get("exception.message"))

    def _judge(self, stream: _Stream, rows: list[_Row]) -> None:
        """Compare a stream's new records with the book, as arrays."""
        topic, place, partition = stream
        if partition < 0:
            self._faults["foreign"] += len(rows)
            return
        book, (sequences, hashes, timestamps) = self._books[b"%d" % partition], np.array(rows, np.int64).T
        first = book.tick(sequences)
        is_sink = topic == self._sink
        here = book.good[sequences] == is_sink
        highest = np.maximum.accumulate(np.concatenate(([self._last[stream]], sequences)))
        self._last[stream] = int(highest[-1])
        if is_sink:
            self._out += _sum(first)
            if place != partition % self._sink_partitions:
                self._faults["wrong_partition"] += len(rows)
        else:
            self._dead += _sum(first)
        self._faults["doubled"] += _sum(~first)
        self._faults["out_of_order"] += _sum(first & (sequences < highest[:-1]))
        self._faults["wrong_topic"] += _sum(~here)
        self._faults["wrong_value"] += _sum(here & (hashes != book.hashes[sequences]))
        self._faults["wrong_timestamp"] += _sum(timestamps != self._recipe.first_timestamp + sequences)

    def _watermarks(self, deadline: float) -> dict[tuple[str, int], int]:
        """Return the end of each partition, including open transactions; wait for a restarting broker."""
        asked = {Place(*place): OffsetSpec.latest() for place in self._ends}  # type: ignore[no-untyped-call]
        while True:
            answers = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ANSWER_SECONDS
            )
            try:
                ends = {(place.topic, place.partition): answer.result().offset for place, answer in answers.items()}
                if all(end >= 0 for end in ends.values()):
                    return ends
                why = "no response"  # librdkafka 2.16 returns a negative offset if a leader does not respond
            except KafkaException as error:
                why = error.args[0].str()
            if time.monotonic() > deadline:
                raise VerificationFailed(f"The verification cannot read the ends of its topics: {why}")
            self.poll()
            # A client whose only broker was killed may never get a response again (librdkafka 2.16).
            self._admin = self._connect()


_Row = tuple[int, int, int]
"""Sequence number, hash of the value, timestamp."""


_Stream = tuple[Any, Any, int]
"""Topic, its partition, and the source partition: records that must be in order."""


class _Book:
    """The expected results of one source partition, in 10 bytes per record."""

    def __init__(self, recipe: Recipe, partition: int) -> None:
        self.partition, self.size = partition, recipe.size(partition)
        self.reasons: dict[int, str] = {}
        """Why records must be rejected, by sequence number."""
        self.hashes: NDArray[np.int64] = np.fromiter(self._results(recipe.lines(partition)), np.int64, self.size)
        self.good: NDArray[np.bool_] = np.ones(self.size, np.bool_)
        self.good[list(self.reasons)] = False
        self._seen: NDArray[np.bool_] = np.zeros(self.size, np.bool_)

    def _results(self, lines: Iterator[GeneratedRecord]) -> Iterator[int]:
        """Note the reasons; yield the hash of each value that must come out."""
        for sequence, (_, value, _, expected, reason) in enumerate(lines):
            if reason:
                self.reasons[sequence] = reason
            yield hash(value if reason else expected)

    def tick(self, sequences: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tick records off; return which of them are seen for the first time."""
        first = np.zeros(len(sequences), np.bool_)
        first[np.unique(sequences, return_index=True)[1]] = True
        first &= ~self._seen[sequences]
        self._seen[sequences] = True
        return first


def _sum(flags: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(flags))


def _partitions(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(topic, timeout=30).topics[topic]
    if found.error:
        raise VerificationFailed(f"The verification cannot read topic {topic}: {found.error.str()}")
    return len(found.partitions)
