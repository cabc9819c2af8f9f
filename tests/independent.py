"""
Writes to and reads from Kafka like any other program: the tests' view, which shares no code with the service.

It uses only confluent_kafka and the standard library, and has its own, independent implementation of the cleansing
rules.
"""

from __future__ import annotations

import ipaddress
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Self, TypeVar, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    NewPartitions,
    OffsetSpec,
)

from tests.support.waiting import PATIENCE, until

Place = tuple[str, int]
T = TypeVar("T")
Headers = Sequence[tuple[str, bytes | None]]
LARGEST = 8 << 20
LINE = re.compile(rb"<<<!>>>(.*)<<<!>>>(?:\r\n|\r|\n)?", re.DOTALL)


class Record(NamedTuple):
    """A record as a read_committed consumer gets it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers

    @property
    def kept_headers(self) -> list[tuple[str, bytes | None]]:
        """The headers without the one that marks the first line of a transaction."""
        return [(name, text) for name, text in self.headers if name != "winnow.transaction"]

    @property
    def error_headers(self) -> dict[str, str]:
        """The dead-letter headers, by the part of their names after `__connect.errors.`."""
        prefix = "__connect.errors."
        return {
            name.removeprefix(prefix): (text or b"").decode() for name, text in self.headers if name.startswith(prefix)
        }


class Written(NamedTuple):
    """A record to write."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp: int = 1_510_464_542_000
    headers: Headers = ()


def line(number: int, partition: int = 0) -> bytes:
    """Return a good raw line whose url contains partition and number."""
    fields = [b""] * 15
    fields[0:8] = b"3111", b"238", b"20171112132902", b"58.223.1.112", b"202.102.92.18", b"59948", b"80", b"x.cn"
    fields[13] = b"http://x.cn/%d/%d" % (partition, number)
    return b"<<<!>>>" + b"<<<!>>>,<<<!>>>".join(fields) + b"<<<!>>>"


def lines(first: int, last: int, *partitions: int) -> list[Written]:
    """Return good raw lines to write, the same numbers for each of these partitions. The key of each is its number."""
    return [Written(line(n, partition), b"%d" % n, partition) for partition in partitions for n in range(first, last)]


def cleansed(number: int, partition: int = 0) -> bytes:
    """Return the line that the service must make of `line`."""
    return b"238|20171112132902|58.223.1.112:59948|202.102.92.18:80|http://x.cn/%d/%d" % (partition, number)


def cleanse(raw: bytes) -> bytes | None:
    """Return the line that the service must make of a real line, or None if it must reject it."""
    found = LINE.fullmatch(raw)
    fields = found[1].split(b"<<<!>>>,<<<!>>>") if found else []
    if len(fields) != 15:
        return None
    house, when, source, destination, out, into = (field.strip(b" \t").decode("latin-1") for field in fields[1:7])
    try:
        datetime.strptime(when, "%Y%m%d%H%M%S")  # noqa: DTZ007  # only checks that the date exists
        ends = [f"[{ip}]" if ipaddress.ip_address(ip).version == 6 else ip for ip in (source, destination)]
    except ValueError:
        return None
    if not house or len(when) != 14 or not all(port.isdigit() and int(port) <= 65_535 for port in (out, into)):
        return None
    url = fields[13].decode("utf-8", "surrogateescape")
    escaped = "".join(
        f"%{ord(c) & 0xFF:02X}" if ord(c) < 32 or c in "|\x7f" or 0xDC80 <= ord(c) <= 0xDCFF else c for c in url
    )
    return f"{house}|{when}|{ends[0]}:{out}|{ends[1]}:{into}|{escaped}".encode()


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    """Add partitions to a topic, and wait until its broker knows their leaders: until then it takes no records for them."""
    client(bootstrap).create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE)

    def grown() -> bool:
        known = client(bootstrap).list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        return len(known) == partitions and all(each.leader >= 0 for each in known.values())

    until(grown, f"{partitions} partitions of {topic}")


def produce(bootstrap: str, topic: str, records: Iterable[Written], **settings: str | int) -> None:
    """Write records in order and wait for every acknowledgement."""
    failures: list[KafkaError] = []
    usual: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, "max.in.flight": 1, "linger.ms": 5}
    producer = Producer({**usual, "message.max.bytes": LARGEST, **settings})
    send(producer, topic, records, failures)
    assert producer.flush(PATIENCE) == 0
    assert not failures, failures[0].str()


def send(producer: Producer, topic: str, records: Iterable[Written], failures: list[KafkaError] | None = None) -> None:
    """Pass records to a producer. Add the errors of delivery reports to `failures`."""

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None and failures is not None:
            failures.append(error)

    for value, key, partition, timestamp, headers in records:
        # confluent_kafka's type of headers is too narrow
        given: Any = {"headers": list(headers)} if headers else {}
        producer.produce(topic, value, key, partition, on_delivery, timestamp=timestamp, **given)
        producer.poll(0)


def read(bootstrap: str, topic: str) -> list[Record]:
    """Return all records of a topic, read_committed. Fail if an open transaction blocks its end."""
    # Without empty partitions: librdkafka 2.16 fetches a partition forever if it is unassigned right after its
    # assignment.
    last = {place: end for place, end in ends(bootstrap, topic).items() if end}
    if not last:
        return []
    consumer, deadline = _consumer(bootstrap), time.monotonic() + PATIENCE
    consumer.list_topics(topic, timeout=PATIENCE)  # otherwise a timer of 1 s finds the leaders of a new topic
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in last])
    records: list[Record] = []
    reached = dict.fromkeys(last, 0)
    while any(reached[place] < end for place, end in last.items()):
        assert time.monotonic() < deadline, f"{topic} is readable only up to {reached}, but ends at {last}"
        for message in consumer.consume(10_000, 0.01):
            if message.error() is None:
                records.append(_record(message))
            else:
                _note_end(message, reached)
    consumer.unassign()
    return sorted(records, key=lambda record: (record.partition, record.offset))


def arrived(bootstrap: str, topic: str, count: int) -> None:
    """Wait until a topic has this many records."""
    until(lambda: len(read(bootstrap, topic)) >= count, f"{count} records")


@cache
def _consumer(bootstrap: str) -> Consumer:
    """Return one consumer for all calls: a connected one is much faster than a new one."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "independent-reader",  # never joined, never committed to
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": LARGEST,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )


def _note_end(message: Message, reached: dict[Place, int]) -> None:
    error: Any = message.error()
    if message.topic() is None:
        return  # a connection was lost, and comes back
    assert error.code() == KafkaError._PARTITION_EOF, error.str()  # librdkafka's own codes have names that begin with _
    place: Any = message.topic(), message.partition()
    reached[place] = message.offset() or 0


def _record(message: Message) -> Record:
    value: Any = message.value()
    partition: Any = message.partition()
    offset: Any = message.offset()
    key: Any = message.key()
    return Record(partition, offset, key, value, message.timestamp()[1], cast("Headers", message.headers() or ()))


def values(records: Iterable[Record], partition: int | None = None) -> list[bytes | None]:
    """Return the values of one partition, or of all."""
    return [record.value for record in records if partition in (None, record.partition)]


def ends(bootstrap: str, topic: str) -> dict[Place, int]:
    """Return the end of each partition of a topic, regardless of open transactions."""
    return _offsets(bootstrap, topic, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def beginnings(bootstrap: str, topic: str) -> dict[Place, int]:
    """Return the beginning of each partition of a topic."""
    return _offsets(bootstrap, topic, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def _offsets(bootstrap: str, topic: str, spec: OffsetSpec) -> dict[Place, int]:
    admin = client(bootstrap)
    asked = {TopicPartition(topic, number): spec for number in _partitions(bootstrap, topic)}

    def ask() -> dict[Place, int]:
        answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=30)
        found = {(at.topic, at.partition): answer.result().offset for at, answer in answers.items()}
        if any(offset < 0 for offset in found.values()):  # so librdkafka 2.16 tells that a leader did not respond
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return found

    return _retried(ask)


def _partitions(bootstrap: str, topic: str) -> Collection[int]:
    return _retried(lambda: client(bootstrap).list_topics(topic, timeout=30)).topics[topic].partitions


def _retried(ask: Callable[[], T]) -> T:
    """Retry until there is a response: a broker that has just started lacks some information, and a busy one is late."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except (KafkaException, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def committed(bootstrap: str, group: str, *topics: str) -> dict[Place, int]:
    """Return the committed offsets of a group for these topics."""

    def ask() -> list[TopicPartition]:
        asked = [TopicPartition(topic, number) for topic in topics for number in _partitions(bootstrap, topic)]
        # Not the admin client's list_consumer_group_offsets: it can crash (librdkafka 2.16) on a restarted broker.
        # Requests are short and repeated: one that waits while the broker starts may never get a response.
        answers = _member(bootstrap, group).committed(asked, 15)
        for at in answers:
            if at.error is not None:
                raise KafkaException(at.error)
        return answers

    return {(at.topic, at.partition): at.offset for at in _retried(ask) if at.offset >= 0}


def commit(bootstrap: str, group: str, offsets: Mapping[Place, int]) -> None:
    """Set offsets of a group, as kafka-consumer-groups --reset-offsets does."""
    wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    answers = _retried(lambda: _member(bootstrap, group).commit(offsets=wanted, asynchronous=False))
    assert all(at.error is None for at in answers or ())


@lru_cache(8)  # each test has its own group, and a client takes threads and file descriptors
def _member(bootstrap: str, group: str) -> Consumer:
    """Return a consumer with the group's id that never joins the group."""
    settings: dict[str, str | bool] = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    return Consumer({**settings, "log_level": 0})


@cache
def client(bootstrap: str) -> AdminClient:
    """Return one admin client for all calls: responses arrive only while it lives."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


_dropped: list[int] = []
"""How many clients had been cached each time that all were dropped."""


def connections() -> int:
    """Return how many cached clients there have been."""
    return sum(_dropped) + sum(made.cache_info().misses for made in (_consumer, _member, client))


def connect_again() -> None:
    """Drop all connections: a client whose only broker was killed may never respond again (librdkafka 2.16)."""
    for made in (_consumer, _member, client):
        _dropped.append(made.cache_info().misses)
        made.cache_clear()


class Feeder:
    """
    Writes numbered good lines to all partitions of a topic at a steady rate, in a thread, until the block ends.

    `written` counts the lines of each partition. It is final once the block has ended.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int = 500) -> None:
        """Prepare without writing."""
        self.written: Counter[int] = Counter()
        self._paused: set[int] = set()
        self._topic, self._partitions = topic, partitions
        self._lines = max(1, per_second // partitions // 20)
        self._stop, self._feeding = threading.Event(), threading.Lock()
        self._failures: list[KafkaError] = []
        # It keeps on writing while a broker is away, however long that takes to start again.
        patience: dict[str, str | int] = {"message.timeout.ms": 0, "queue.buffering.max.messages": 1_000_000}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True, "linger.ms": 20, **patience}
        )
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop."""
        if kind is None:
            self.stop()
        self._stop.set()

    def pause(self, partition: int) -> None:
        """Write no more to a partition, and wait for every acknowledgement."""
        with self._feeding:
            self._paused.add(partition)
            self._flush()

    def resume(self) -> None:
        """Write to all partitions again."""
        self._paused.clear()

    def stop(self) -> None:
        """Stop and wait for every acknowledgement."""
        self._stop.set()
        self._thread.join()
        self._flush()

    def _flush(self) -> None:
        assert self._producer.flush(PATIENCE) == 0
        assert not self._failures, self._failures[0].str()

    def _feed(self) -> None:
        while not self._stop.wait(0.05):
            with self._feeding:
                for partition in set(range(self._partitions)) - self._paused:
                    first = self.written[partition]
                    send(self._producer, self._topic, lines(first, first + self._lines, partition), self._failures)
                    self.written[partition] += self._lines


def sequence(written: Mapping[int, int]) -> dict[int, list[bytes]]:
    """Return the lines, in order, that a sink with as many partitions as the source must contain after a `Feeder`."""
    return {partition: [cleansed(n, partition) for n in range(count)] for partition, count in written.items()}


def amiss(written: Mapping[int, int], records: Iterable[Record]) -> dict[int, str]:
    """Return the runs of numbers in each sink partition that does not contain a `Feeder`'s lines in order."""
    expected, found = sequence(written), by_partition(records)
    return {
        partition: f"{_runs(found.get(partition, []))}; written: {written.get(partition, 0)}"
        for partition in expected.keys() | found.keys()
        if expected.get(partition, []) != found.get(partition, [])
    }


def held(bootstrap: str, topic: str) -> dict[int, list[bytes | None]]:
    """
    Return what a sink must contain for what a source holds: its good lines, cleansed, by partition.

    If a broker is killed, that may be more than was sent. An idempotent producer that loses its connection may write a
    batch twice (librdkafka #4953).
    """
    return by_partition(each._replace(value=cleanse(each.value or b"")) for each in read(bootstrap, topic))


def _runs(lines: Iterable[bytes | None]) -> str:
    numbers = [int((value or b"").rpartition(b"/")[2]) for value in lines]
    breaks = [0, *(place for place in range(1, len(numbers)) if numbers[place] != numbers[place - 1] + 1), len(numbers)]
    return ", ".join(f"{numbers[first]}-{numbers[last - 1]}" for first, last in pairwise(breaks) if first < last)


def by_partition(records: Iterable[Record]) -> dict[int, list[bytes | None]]:
    """Return the values of each partition."""
    found: dict[int, list[bytes | None]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record.value)
    return dict(found)
