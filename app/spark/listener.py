"""
Commits the offsets of a Structured Streaming query to a consumer group, so that lag tools can see the query.

For users with an existing query, as docs/integrations.md shows; the service itself does not use it. The query still
resumes from its checkpoint alone, so a failure to commit neither stops the query nor slows it down.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from app.model import CommittedOffset, Partition, Plugin
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.registry import open_store
from app.runtime import REAL

log = logging.getLogger("winnow.spark.listener")

FIRST_PAUSE, LAST_PAUSE = 0.5, 10.0
"""Seconds between two attempts to save, doubled after each failure."""
SAY_AGAIN_SECONDS = 60.0
RENEW_SECONDS = 3600.0
"""Brokers expire the offsets of a group without members after 7 days, even while its query is idle."""
IN_KAFKA: Mapping[str, object] = MappingProxyType({"name": "kafka"})

Offsets = dict[Partition, int]


class OffsetListener(StreamingQueryListener):
    """
    Saves the end offsets of each Kafka source after every batch, in a thread of its own.

    Offsets never go back: after a query starts afresh, the group's offsets stay until the query has passed them.

    Args:
        group: the consumer group for lag tools. Nothing else may commit to it.
        kafka: librdkafka properties, as in the `kafka` section of the configuration.
        store: the offset store, as in `offsets.store` of the configuration.
        query: the name of the query to follow; by default, every query of the session. Two queries that read the same
            partitions need a listener and a group each.

    Raises:
        UnknownStore, StoreOptionError: the store does not exist, or does not accept these options.
    """

    def __init__(
        self, group: str, kafka: Mapping[str, str], *, store: Mapping[str, object] = IN_KAFKA, query: str | None = None
    ) -> None:
        options = dict(store)
        plugin = Plugin(str(options.pop("name", "kafka")), options)
        self._saver = OffsetSaver(open_store(plugin, StoreContext(group, kafka)))
        self._query = query
        self._followed: set[str] = set()
        self._ended = threading.Condition()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name, as the two below
        if self._query in (None, event.name):
            with self._ended:
                self._followed.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        if self._query in (None, event.progress.name):
            self._saver.offer(end_offsets(event.progress.json), str(event.progress.id))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Stop following the query, which lets `close` continue."""
        with self._ended:
            self._followed.discard(str(event.runId))
            self._ended.notify_all()

    def close(self, seconds: float = 10.0) -> bool:
        """Wait, at most this long, for queries to end and offsets to be saved, then stop; return whether all was."""
        deadline = REAL.monotonic() + seconds
        with self._ended:
            ended = self._ended.wait_for(lambda: not self._followed, seconds)
        return self._saver.close(max(0.0, deadline - REAL.monotonic())) and ended


def end_offsets(progress: str) -> Offsets:
    """Return the end offsets of a query's Kafka sources from its progress JSON; the smaller one of duplicates."""
    found: Offsets = {}
    for source in json.loads(progress)["sources"]:
        if source["description"].startswith("Kafka"):
            for topic, numbers in (source["endOffset"] or {}).items():
                for number, offset in numbers.items():
                    partition = Partition(topic, int(number))
                    found[partition] = min(offset, found.get(partition, offset))
    return found


class OffsetSaver:
    """Saves the newest offsets in a thread until closed. Logs a failure once a minute."""

    def __init__(self, store: OffsetStore, clock: Callable[[], float] = REAL.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._named: dict[str, frozenset[Partition]] = {}
        """The partitions in the last progress of each query."""
        self._due: Offsets = {}
        self._saved: Offsets = {}
        self._renew_at = clock() + RENEW_SECONDS
        self._changed = threading.Condition()
        self._closing = False
        self._failing = False
        self._say_at: dict[str, float] = {}
        threading.Thread(target=self._run, name="winnow-offsets", daemon=True).start()

    def offer(self, offsets: Offsets, query: str = "") -> None:
        """Take the newest offsets of a query and return at once. What it names no longer is gone, and forgotten."""
        with self._changed:
            for gone in self._named.get(query, frozenset()) - offsets.keys():
                self._due.pop(gone, None)
                self._saved.pop(gone, None)
            self._named[query] = frozenset(offsets)
            self._due |= {each: offset for each, offset in offsets.items() if self._saved.get(each) != offset}
            self._changed.notify_all()

    def close(self, seconds: float) -> bool:
        """Wait until all is saved, for at most this time, and stop; return whether it was."""
        with self._changed:
            saved = self._changed.wait_for(lambda: not self._due, seconds)
            self._closing = True
            self._changed.notify_all()
        return saved

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while self._await_due():
            if self._save():
                pause = FIRST_PAUSE
                continue
            with self._changed:
                self._changed.wait_for(lambda: self._closing, pause)
            pause = min(2 * pause, LAST_PAUSE)
        self._store.close()

    def _await_due(self) -> bool:
        """Wait for offsets to save, or for the time to renew them; return false at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._due or self._closing, max(0.0, self._renew_at - self._clock()))
            return not self._closing

    def _save(self) -> bool:
        """Save what is due, and renew the rest when it is time; return whether all of it succeeded."""
        with self._changed:
            renews = self._clock() >= self._renew_at
            due = {**(self._saved if renews else {}), **self._due}
        try:
            # One request for all partitions: during an outage, each would wait for its own timeout.
            stored = self._store.load(due, stable=True)
        except Exception as error:  # noqa: BLE001  # whatever a store raises, the thread continues
            return self._failed(error)
        if renews:  # a partition whose renewal fails waits for the next one, so it keeps no `close` waiting
            self._renew_at = self._clock() + RENEW_SECONDS
        done = [self._save_one(each, offset, stored.get(each), renews=renews) for each, offset in due.items()]
        if all(done) and self._failing:
            self._failing = False
            log.warning("the offsets of the query are saved again")
        return all(done)

    def _save_one(self, partition: Partition, offset: int, stored: CommittedOffset | None, *, renews: bool) -> bool:
        new = CommittedOffset(offset)
        if stored is not None and stored.offset > offset:
            self._say("%s stays at %d, because the query is only at %d", partition, stored.offset, offset)
            new = stored
        if new is not stored or renews:
            try:
                self._store.save(partition, new.offset, new.metadata)
            except Exception as error:  # noqa: BLE001  # as above
                return self._failed(error)
        with self._changed:
            if partition in self._due or partition in self._saved:  # else it was forgotten meanwhile
                self._saved[partition] = offset
            if self._due.get(partition) == offset:
                del self._due[partition]
            self._changed.notify_all()
        return True

    def _failed(self, error: Exception) -> bool:
        self._failing = True
        self._say("the query continues, but its offsets are not being saved, so lag tools see old ones: %s", error)
        return False

    def _say(self, message: str, *details: object) -> None:
        now = self._clock()
        if now >= self._say_at.get(message, now):
            self._say_at[message] = now + SAY_AGAIN_SECONDS
            log.warning(message, *details)
