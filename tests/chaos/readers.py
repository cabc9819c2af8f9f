"""
Reads what the service writes, with isolation level read_committed and none of the product's code.

`Reader` follows the sink and the dead letters during the faults. `Watcher` records how far they can be read, and
`GroupWatcher` records the committed offsets of the group.
"""

from __future__ import annotations

import contextlib
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from tests.chaos.history import Recorder
from tests.chaos.lines import is_cleansed, is_unchanged, numbered

TRANSACTION = "winnow-chaos-transaction"
COUNT = "winnow-chaos-count"
"""Headers that the harness adds to dead letters; only the last record of a transaction has `COUNT`."""
HASHED_EVERY = 16
"""Of so many offsets, the record at one is hashed: its line is known for each, and only the rest could differ."""
POLL_SECONDS = 0.5
KNOWN_SECONDS = 300.0


def places_of(client: Consumer | AdminClient, topics: Iterable[str]) -> list[tuple[str, int]]:
    """Return the partitions of topics, as soon as the broker that is asked knows them; they may be new."""
    deadline = time.monotonic() + KNOWN_SECONDS
    while True:
        known = client.list_topics(timeout=KNOWN_SECONDS).topics
        missing = [topic for topic in topics if topic not in known]
        if not missing:
            return [(topic, number) for topic in topics for number in known[topic].partitions]
        assert time.monotonic() < deadline, f"the broker does not know {missing}"
        time.sleep(POLL_SECONDS)


class Background:
    """Repeats a step in a thread until the block ends."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._stop.is_set():
            self.step()

    def step(self) -> None:
        """Do one step."""
        raise NotImplementedError


class Reader(Background):
    """
    Reads the two output topics from their beginning and records what it gets.

    Args:
        name: its name in the history.
        bootstrap: the brokers.
        roles: the topics by role: `sink` and `dead`.
        recorder: gets what it reads.
        settings: further settings of its consumer.
    """

    def __init__(
        self, name: str, bootstrap: str, roles: Mapping[str, str], recorder: Recorder, **settings: str | int
    ) -> None:
        """Assign all partitions of both topics, from the beginning."""
        super().__init__()
        self.name = name
        self.lines = 0
        self._roles = {topic: role for role, topic in roles.items()}
        self._recorder = recorder
        usual: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "winnow-chaos-reader",  # never joined, never committed to
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._consumer = Consumer(usual | settings)
        self._reached: dict[tuple[str, int], int] = {}
        places = places_of(self._consumer, self._roles)
        self._consumer.assign([Place(*place, 0) for place in places])

    def step(self) -> None:
        """Record what has arrived."""
        found: dict[tuple[str, int], list[list[Any]]] = defaultdict(list)
        altered: dict[tuple[str, int], list[str]] = defaultdict(list)
        hashes: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        for message in self._consumer.consume(5_000, 0.2):
            place: Any = (message.topic(), message.partition())
            if message.error():
                self._on_error(message, place)
            elif not self._closes(message):
                self._add(found[place], altered[place], message, self._roles[place[0]])
                if (offset := message.offset() or 0) % HASHED_EVERY == 0:
                    hashes[place][offset] = _hash(message)
        for (topic, partition), runs in found.items():
            noted = {"altered": altered[topic, partition], "hashes": hashes[topic, partition]}
            more = {key: value for key, value in noted.items() if value}
            self._recorder.record(
                "read", reader=self.name, role=self._roles[topic], partition=partition, runs=runs, **more
            )
            self.lines += sum(run[3] for run in runs)

    def _on_error(self, message: Message, place: tuple[str, int]) -> None:
        error: Any = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._reached[place] = message.offset() or 0
        elif place[0] is not None:
            self._recorder.record("trouble", reader=self.name, error=error.str())

    def _closes(self, message: Message) -> bool:
        """Return whether a record is the last of a transaction; if so, record the count in its header."""
        headers = dict(message.headers() or ())
        if COUNT not in headers:
            return False
        fields = {"transaction": _text(headers[TRANSACTION]), "count": int(headers[COUNT] or 0)}
        self._recorder.record("closed", reader=self.name, **fields)
        return True

    def _add(self, runs: list[list[Any]], altered: list[str], message: Message, role: str) -> None:
        value, name = message.value() or b"", message.key()
        name, _, label = (None, b"", b"") if name is None else bytes(name).partition(b"|")
        stream, number = numbered(name, value)
        transaction = _text(dict(message.headers() or ()).get(TRANSACTION) if role == "dead" else label)
        offset: Any = message.offset()
        if not (is_unchanged if role == "dead" else is_cleansed)(value, stream, number):
            altered.append(f"{role}-{message.partition()}@{offset}: {value[:200]!r}")
        if runs and runs[-1][1] == stream and runs[-1][4] == transaction:
            first_offset, _, first, count, _ = runs[-1]
            if (offset, number) == (first_offset + count, first + count):
                runs[-1][3] += 1
                return
        runs.append([offset, stream, number, 1, transaction])

    def caught_up(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Return whether it has read up to these ends."""
        return all(self._reached.get(place, 0) >= end for place, end in ends.items())

    def read_to(self, ends: Mapping[tuple[str, int], int], seconds: float) -> bool:
        """Read up to these ends, in this thread; give up after `seconds` without a line. Return whether it got there."""
        lines, deadline = self.lines, time.monotonic() + seconds
        while not self.caught_up(ends) and time.monotonic() < deadline:
            self.step()
            if self.lines > lines:
                lines, deadline = self.lines, time.monotonic() + seconds
        return self.caught_up(ends)


def _hash(message: Message) -> int:
    """Return a hash of everything that two readers must get alike."""
    return zlib.crc32(repr((message.timestamp(), message.key(), message.value(), message.headers())).encode())


def _text(raw: str | bytes | None) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw or ""


class Watcher(Background):
    """Records the last stable offset and the high watermark of each output partition, twice a second."""

    def __init__(self, bootstrap: str, roles: Mapping[str, str], recorder: Recorder) -> None:
        """Find the partitions."""
        super().__init__()
        self._roles = {topic: role for role, topic in roles.items()}
        self._recorder = recorder
        quiet: dict[str, Any] = {"log_level": 0, "reconnect.backoff.max.ms": 500}
        self._settings = quiet | {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._settings)
        self.places = places_of(self._admin, self._roles)

    def step(self) -> None:
        """Record the offsets once, except of partitions whose broker does not answer."""
        self._stop.wait(POLL_SECONDS)
        rows = self.rows()
        if rows:
            self._recorder.record("marks", rows=rows)
        if len(rows) < len(self.places):
            self._admin = AdminClient(self._settings)  # after an outage, an admin client may not recover

    def rows(self, seconds: float = 1.0) -> list[tuple[str, int, int, int]]:
        """Return role, partition, last stable offset and high watermark of each partition that answers in time."""
        asked = {Place(*place): OffsetSpec.latest() for place in self.places}  # type: ignore[no-untyped-call]
        stable, high = (
            self._admin.list_offsets(asked, isolation_level=level, request_timeout=seconds)
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
        rows = []
        for at in asked:
            with contextlib.suppress(KafkaException, TimeoutError):
                ends = stable[at].result(seconds * 2).offset, high[at].result(seconds * 2).offset
                rows.append((self._roles[at.topic], at.partition, *ends))
        return rows


class GroupWatcher(Background):
    """Records the committed offsets of the group, twice a second."""

    def __init__(self, bootstrap: str, group: str, source: str, recorder: Recorder) -> None:
        """Create a consumer that has the group's id but never joins the group."""
        super().__init__()
        self._source, self._recorder = source, recorder
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        self._consumer = Consumer(settings | {"log_level": 0, "reconnect.backoff.max.ms": 500})
        self.committed: dict[int, int] = {}

    def step(self) -> None:
        """Record the offsets once, if the coordinator answers."""
        self._stop.wait(POLL_SECONDS)
        try:
            partitions = self._consumer.list_topics(self._source, timeout=2).topics[self._source].partitions
            found = self._consumer.committed([Place(self._source, number) for number in partitions], timeout=2)
        except KafkaException:
            return
        self._record(at for at in found if at.error is None and at.offset >= 0)

    def _record(self, found: Iterable[Place]) -> None:
        self.committed |= (now := {at.partition: at.offset for at in found})
        self._recorder.record("committed", offsets=now)
