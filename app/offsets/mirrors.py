"""
Mirrors: copies of the committed offsets in other stores, for tools that read those. They never delay the service.

Tasks write each committed offset to their mirrors. The driver regularly compares the mirrors with the store: it adds
what a killed task did not write, and corrects a mirror that is ahead because an operator set offsets back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from app.errors import CorruptOffset, Fenced, Unreachable
from app.events import REMIND_SECONDS, Event
from app.model import CommittedOffset, Partition, Plugin
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.registry import open_store
from app.runtime import REAL

Offsets = Mapping[Partition, CommittedOffset]
Left = dict[Partition, CommittedOffset]
"""Offsets that are not written yet."""
Write = Callable[[OffsetStore, Left], None]

# Tools read a mirror every few seconds, so only the newest offset of each partition in this time is written.
PACE_SECONDS = 1.0
FIRST_BACKOFF, LAST_BACKOFF = 0.5, 30.0
FAILURE_SECONDS = 1.0
"""How long failures may take before a write gives up; a store that is down may need its timeout for each partition."""
CLOSE_SECONDS = 1.5
"""How long the end of a round or the service waits for the mirrors to write what is pending."""


class MirrorStatus(NamedTuple):
    """
    A mirror at one moment.

    Args:
        failures: failed writes in its lifetime.
        waiting: partitions with an unwritten offset.
        error: why it fails; empty while it works.
        since: when it started to fail, in seconds since the epoch.
    """

    name: str
    failures: int = 0
    waiting: int = 0
    error: str = ""
    since: float = 0.0


class Mirror:
    """One mirror, written by a thread of its own, which starts with the first offset."""

    def __init__(self, name: str, open_store: Callable[[], OffsetStore], write: Write) -> None:
        self._name = name
        self._open_store = open_store
        self._store: OffsetStore | None = None
        self._write = write
        self._news = threading.Condition()
        self._waiting: dict[Partition, CommittedOffset] = {}
        self._closing = False
        self._thread: threading.Thread | None = None
        self._failures = self._failures_now = 0
        """Failed writes in this mirror's lifetime, and in the current outage; 0 if there is none."""
        self._trouble = ("", 0.0)
        """The latest error of the current outage, and when that began."""
        self._failing_since = 0.0
        """When it began, by the monotonic clock."""
        self._said_at = 0.0

    @property
    def status(self) -> MirrorStatus:
        with self._news:
            return MirrorStatus(self._name, self._failures, len(self._waiting), *self._trouble)

    def put(self, offsets: Offsets) -> None:
        """Queue offsets for writing; newer ones replace those still waiting."""
        with self._news:
            self._waiting.update(offsets)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"winnow-mirror-{self._name}", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def put_all(self, offsets: Offsets) -> None:
        """Queue the offsets of all partitions there are. What still waits of others is dropped: they are gone."""
        with self._news:
            self._waiting.clear()
            self.put(offsets)

    def close(self, seconds: float) -> None:
        """Try to write what waits once more, for at most this many seconds."""
        with self._news:
            self._closing = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        backoff = FIRST_BACKOFF
        while offsets := self._next():
            if self._written(offsets):
                backoff = FIRST_BACKOFF
                self._pause(PACE_SECONDS)
            elif self._closing:
                break
            else:
                self._pause(backoff)
                backoff = min(backoff * 2, LAST_BACKOFF)
        self._close_store()

    def _next(self) -> Offsets:
        """Wait for offsets and take them; none means the end."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closing)
            taken, self._waiting = self._waiting, {}
            return taken

    def _pause(self, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._closing, seconds)

    def _written(self, offsets: Offsets) -> bool:
        """Write offsets; keep those that failed and have no newer one."""
        left = dict(offsets)
        try:
            self._store = self._store or self._open_store()
            self._write(self._store, left)
        except Exception as error:  # noqa: BLE001  # no error of a store may end the mirror
            with self._news:
                self._waiting = {**left, **self._waiting}
            self._failed(error)
            # The next try opens it again, with the password of that time. Kafka's store reads it for each client, and
            # must remember a commit without an answer: librdkafka may repeat it, and the offset would go back.
            if self._store is not None and not self._store.transactional:
                self._close_store()
            return False
        if self._failures_now:
            Event.MIRROR_CAUGHT_UP.log(**self._outage())
            self._failures_now, self._trouble = 0, ("", 0.0)
        return True

    def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(Exception):  # it may have failed for good
                store.close()

    def _failed(self, error: Exception) -> None:
        now, first = REAL.monotonic(), not self._failures_now
        self._failures += 1
        self._failures_now += 1
        if first:
            self._failing_since = now
        self._trouble = str(error), REAL.wall_clock() if first else self._trouble[1]
        if first or now - self._said_at >= REMIND_SECONDS:
            self._said_at = now
            Event.MIRROR_FAILING.log(**self._outage(), waiting=len(self._waiting), error=str(error))

    def _outage(self) -> dict[str, object]:
        seconds = round(REAL.monotonic() - self._failing_since, 1)
        return {"mirror": self._name, "failures": self._failures_now, "seconds": seconds}


class Mirrors:
    """All mirrors of a process."""

    def __init__(self, mirrors: Sequence[Mirror] = ()) -> None:
        self._mirrors = mirrors
        self._newest: dict[Partition, int] = {}

    @property
    def status(self) -> tuple[MirrorStatus, ...]:
        return tuple(mirror.status for mirror in self._mirrors)

    def put(self, partition: Partition, offset: int, metadata: str) -> None:
        """Queue a committed offset; a repeated commit of an idle partition changes nothing."""
        if self._mirrors and self._newest.get(partition) != offset:
            self._newest[partition] = offset
            for mirror in self._mirrors:
                mirror.put({partition: CommittedOffset(offset, metadata)})

    def put_all(self, offsets: Offsets) -> None:
        for mirror in self._mirrors:
            mirror.put_all(offsets)

    def close(self) -> None:
        deadline = REAL.monotonic() + CLOSE_SECONDS
        for mirror in self._mirrors:
            mirror.close(max(0.0, deadline - REAL.monotonic()))


def mirrors_in(stores: Iterable[Plugin], context: StoreContext, write: Write) -> Mirrors:
    return Mirrors([Mirror(each.name, partial(open_store, each, context), write) for each in stores])


def write_forward(mirror: OffsetStore, left: Left) -> None:
    """Write offsets as a task does: if the mirror is ahead, leave it to the driver, which knows the store."""
    _write_each(left, partial(_save, mirror))


def put_right(mirror: OffsetStore, left: Left, truth: OffsetStore) -> None:
    """
    Write offsets as the driver does: also set back those that are ahead of the store, which is the truth.

    Tasks continue meanwhile, so a mirror ahead of these offsets may be correct. Tasks write only committed offsets: a
    mirror is wrong only if it is ahead of an offset loaded from the store after it. Of hundreds of busy partitions one
    is always pending, so that load may fail: then the next comparison decides.
    """
    found = mirror.load(left, stable=False)
    ahead = [each for each, at in found.items() if at.corrupt or at.offset > left[each].offset]
    later: Mapping[Partition, CommittedOffset] = {}
    with contextlib.suppress(Unreachable):
        later = truth.load(ahead, stable=True) if ahead else {}

    def write(partition: Partition, at: CommittedOffset) -> None:
        stored, right = found.get(partition), later.get(partition)
        if stored is None or (not stored.corrupt and stored.offset < at.offset):
            _save(mirror, partition, at)
        elif right is not None and (stored.corrupt or stored.offset > right.offset):
            mirror.reset(partition, right.offset, right.metadata)

    _write_each(left, write)


def _write_each(left: Left, write: Callable[[Partition, CommittedOffset], None]) -> None:
    """
    Write each offset. What fails stays in `left`, behind the others, so that it cannot hold them up for ever.

    Raises the first error at the end, or once failures have taken too long: the whole store may be down.
    """
    errors: list[Exception] = []
    seconds = 0.0
    for partition, at in tuple(left.items()):
        began = REAL.monotonic()
        del left[partition]
        try:
            write(partition, at)
        except Exception as error:  # noqa: BLE001  # no error of one partition may keep the others from the mirror
            left[partition] = at
            errors.append(error)
            seconds += REAL.monotonic() - began
            if seconds > FAILURE_SECONDS:
                break
    if errors:
        raise errors[0]


def _save(mirror: OffsetStore, partition: Partition, at: CommittedOffset) -> None:
    try:
        mirror.save(partition, at.offset, at.metadata)
    except Fenced:
        pass
    except CorruptOffset:
        mirror.reset(partition, at.offset, at.metadata)
