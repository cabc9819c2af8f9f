"""
Reads what the service writes, as anybody would: read_committed, librdkafka only, none of the product's code.

`Reader` follows sink and dead letters while faults happen; `Watcher` looks at how far they can be read, and at the
group's offsets.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from tests.chaos.history import Recorder
from tests.chaos.load import bad_line
from tests.independent import cleansed

TRANSACTION = "winnow-chaos-transaction"
COUNT = "winnow-chaos-count"
"""Headers that the harness's writer gives to dead letters; `COUNT` only to the last record of a transaction."""
LOOK_SECONDS = 0.5


class Background:
    """Something that repeats a step in a thread until the block ends."""

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
        """Do it once."""
        raise NotImplementedError


class Reader(Background):
    """
    Reads two topics from their beginning and records what it gets.

    Args:
        name: who it is in the history.
        bootstrap: where.
        roles: the topics by role: sink and dead.
        recorder: where it records.
        settings: what distinguishes it from other readers.
    """

    def __init__(
        self, name: str, bootstrap: str, roles: Mapping[str, str], recorder: Recorder, **settings: str | int
    ) -> None:
        """Go to the beginning of both topics."""
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
        known = self._consumer.list_topics(timeout=30).topics
        places = [(topic, number) for topic in self._roles for number in known[topic].partitions]
        self._consumer.assign([Place(*place, 0) for place in places])

    def step(self) -> None:
        """Take what has come."""
        found: dict[tuple[str, int], list[list[Any]]] = defaultdict(list)
        altered: dict[tuple[str, int], list[str]] = defaultdict(list)
        for message in self._consumer.consume(5_000, 0.2):
            place: Any = (message.topic(), message.partition())
            if message.error():
                self._note_end(message, place)
            elif not self._closes(message):
                self._add(found[place], altered[place], message, self._roles[place[0]])
        for (topic, partition), runs in found.items():
            told = {"altered": altered[topic, partition]} if altered[topic, partition] else {}
            self._recorder.record(
                "read", reader=self.name, role=self._roles[topic], partition=partition, runs=runs, **told
            )
            self.lines += sum(run[3] for run in runs)

    def _note_end(self, message: Message, place: tuple[str, int]) -> None:
        error: Any = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._reached[place] = message.offset() or 0
        elif place[0] is not None:
            self._recorder.record("trouble", reader=self.name, error=error.str())

    def _closes(self, message: Message) -> bool:
        """Tell whether it is the last record of a transaction, which says how many there are."""
        headers = dict(message.headers() or ())
        if COUNT not in headers:
            return False
        told = {"transaction": _text(headers[TRANSACTION]), "count": int(headers[COUNT] or 0)}
        self._recorder.record("closed", reader=self.name, **told)
        return True

    def _add(self, runs: list[list[Any]], altered: list[str], message: Message, role: str) -> None:
        name, _, label = _text(message.key()).partition("|")
        stream, number = map(int, name.split(":"))
        if role == "dead":
            label = _text(dict(message.headers() or ()).get(TRANSACTION))
        offset: Any = message.offset()
        if message.value() != (bad_line(stream, number) if role == "dead" else cleansed(number, stream)):
            altered.append(f"{role}-{message.partition()}@{offset}: {message.value()!r}")
        if runs and runs[-1][1] == stream and runs[-1][4] == label:
            first_offset, _, first, count, _ = runs[-1]
            if (offset, number) == (first_offset + count, first + count):
                runs[-1][3] += 1
                return
        runs.append([offset, stream, number, 1, label])

    def caught_up(self, ends: Mapping[tuple[str, int], int]) -> bool:
        """Tell whether it has read up to these ends."""
        return all(self._reached.get(place, 0) >= end for place, end in ends.items())

    def read_to(self, ends: Mapping[tuple[str, int], int], seconds: float) -> bool:
        """Read, without a thread, up to these ends, unless nothing comes for so long; tell whether they were reached."""
        lines, deadline = self.lines, time.monotonic() + seconds
        while not self.caught_up(ends) and time.monotonic() < deadline:
            self.step()
            if self.lines > lines:
                lines, deadline = self.lines, time.monotonic() + seconds
        return self.caught_up(ends)


def _text(raw: str | bytes | None) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw or ""


class Watcher(Background):
    """Records twice a second how far the output can be read, and how far it was written."""

    def __init__(self, bootstrap: str, roles: Mapping[str, str], recorder: Recorder) -> None:
        """Find the partitions."""
        super().__init__()
        self._roles = {topic: role for role, topic in roles.items()}
        self._recorder = recorder
        quiet: dict[str, Any] = {"log_level": 0, "reconnect.backoff.max.ms": 500}
        self._settings = quiet | {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._settings)
        known = self._admin.list_topics(timeout=30).topics
        self.places = [(topic, number) for topic in self._roles for number in known[topic].partitions]

    def step(self) -> None:
        """Look once; a partition whose broker does not answer is told when it does."""
        self._stop.wait(LOOK_SECONDS)
        rows = self.rows()
        if rows:
            self._recorder.record("marks", rows=rows)
        if len(rows) < len(self.places):
            self._admin = AdminClient(self._settings)  # one that has met an outage may not notice its end

    def rows(self, seconds: float = 1.0) -> list[tuple[str, int, int, int]]:
        """Ask for the last stable offset and the high watermark of each partition; return what is answered in time."""
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
    """Records twice a second what the group has committed."""

    def __init__(self, bootstrap: str, group: str, source: str, recorder: Recorder) -> None:
        """Make a consumer that knows the group and never joins it."""
        super().__init__()
        self._source, self._recorder = source, recorder
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        self._consumer = Consumer(settings | {"log_level": 0, "reconnect.backoff.max.ms": 500})
        self.committed: dict[int, int] = {}

    def step(self) -> None:
        """Look once."""
        self._stop.wait(LOOK_SECONDS)
        try:
            partitions = self._consumer.list_topics(self._source, timeout=2).topics[self._source].partitions
            found = self._consumer.committed([Place(self._source, number) for number in partitions], timeout=2)
        except KafkaException:
            return
        self._note(at for at in found if at.error is None and at.offset >= 0)

    def _note(self, found: Iterable[Place]) -> None:
        self.committed |= (now := {at.partition: at.offset for at in found})
        self._recorder.record("committed", offsets=now)
