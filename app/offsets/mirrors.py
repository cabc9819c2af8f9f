"""
Mirrors: copies of the committed offsets in other stores, for tools that watch those. They never hold up the flow.

A task tells its mirrors each committed offset. The driver compares them with the truth at each look, which catches up
what a killed task did not write, and puts right what is ahead of the truth because somebody set the offsets back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from app.errors import CorruptOffset, Fenced
from app.events import MIRROR_CAUGHT_UP, MIRROR_FAILING, REMIND_SECONDS
from app.model import CommittedOffset, Partition, Plugin
from app.offsets.contract import OffsetStore, StoreContext
from app.offsets.registry import open_store
from app.runtime import REAL, Runtime

Offsets = Mapping[Partition, CommittedOffset]
Write = Callable[[OffsetStore, Offsets], None]

# Tools look at a mirror every few seconds: in between only the newest offset of each partition is kept.
PACE_SECONDS = 1.0
FIRST_BACKOFF, LAST_BACKOFF = 0.5, 30.0
CLOSE_SECONDS = 1.5
"""How long the end of a round, or of the service, waits for what the mirrors have not written yet."""


class MirrorStatus(NamedTuple):
    """
    A mirror at one moment.

    Args:
        name: the name of its store.
        failures: how many attempts to write have failed in its life.
        waiting: how many partitions have an offset that is not written yet.
        error: why it fails; empty while it does not.
        since: when it began to fail, in seconds since the epoch.
    """

    name: str
    failures: int = 0
    waiting: int = 0
    error: str = ""
    since: float = 0.0


class Mirror:
    """
    One mirror, written by a thread of its own, which starts with the first offset.

    Args:
        name: the name of its store, for the log.
        open_store: opens the store.
        write: writes a batch of offsets to the store, and raises if that fails.
        runtime: the clock.
    """

    def __init__(self, name: str, open_store: Callable[[], OffsetStore], write: Write, runtime: Runtime = REAL) -> None:
        self.failures = 0
        """How many attempts to write have failed, in this mirror's life."""
        self._name = name
        self._open_store = open_store
        self._store: OffsetStore | None = None
        self._write = write
        self._clock = runtime.monotonic
        self._wall_clock = runtime.wall_clock
        self._news = threading.Condition()
        self._waiting: dict[Partition, CommittedOffset] = {}
        self._closing = False
        self._thread: threading.Thread | None = None
        self._failing_since: float | None = None
        self._trouble = ("", 0.0)
        """The last error while it fails, and the time of day of the first."""
        self._said_at = 0.0
        self._failed_before = 0
        """How many attempts had failed before the outage that goes on now."""

    @property
    def status(self) -> MirrorStatus:
        """How it is now."""
        with self._news:
            return MirrorStatus(self._name, self.failures, len(self._waiting), *self._trouble)

    def put(self, offsets: Offsets) -> None:
        """Have these offsets written soon; newer ones replace them meanwhile."""
        with self._news:
            self._waiting.update(offsets)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"winnow-mirror-{self._name}", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def close(self, seconds: float) -> None:
        """Have what waits written once more, and wait for that so many seconds at most."""
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
        if self._store is not None:
            self._store.close()

    def _next(self) -> Offsets:
        """Wait for offsets and take them; nothing means the end."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closing)
            taken, self._waiting = self._waiting, {}
            return taken

    def _pause(self, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._closing, seconds)

    def _written(self, offsets: Offsets) -> bool:
        """Write offsets; if that fails, keep those that no newer ones have replaced."""
        try:
            self._store = self._store or self._open_store()
            self._write(self._store, offsets)
        except Exception as error:  # noqa: BLE001  # whatever a store raises, it must not end the mirror
            with self._news:
                self._waiting = {**offsets, **self._waiting}
            self._failed(error)
            return False
        self._succeeded()
        return True

    def _failed(self, error: Exception) -> None:
        now, first = self._clock(), self._failing_since is None
        self.failures += 1
        if first:
            self._failing_since = now
        self._trouble = str(error), self._wall_clock() if first else self._trouble[1]
        if first or now - self._said_at >= REMIND_SECONDS:
            self._said_at = now
            told = self._told(now) | {"waiting": len(self._waiting), "error": str(error)}
            MIRROR_FAILING.log(told)

    def _succeeded(self) -> None:
        if self._failing_since is not None:
            MIRROR_CAUGHT_UP.log(self._told(self._clock()))
            self._failing_since, self._failed_before, self._trouble = None, self.failures, ("", 0.0)

    def _told(self, now: float) -> dict[str, object]:
        seconds = 0.0 if self._failing_since is None else round(now - self._failing_since, 1)
        return {"mirror": self._name, "failures": self.failures - self._failed_before, "seconds": seconds}


class Mirrors:
    """
    All mirrors of a process.

    Args:
        mirrors: one for each store that is configured.
    """

    def __init__(self, mirrors: Sequence[Mirror] = ()) -> None:
        self._mirrors = mirrors
        self._newest: dict[Partition, int] = {}

    @property
    def failures(self) -> int:
        """How many attempts to write have failed."""
        return sum(mirror.failures for mirror in self._mirrors)

    @property
    def status(self) -> tuple[MirrorStatus, ...]:
        """How each mirror is now."""
        return tuple(mirror.status for mirror in self._mirrors)

    def put(self, partition: Partition, offset: int, metadata: str) -> None:
        """Take in that an offset was committed; an idle partition that commits the same one again changes nothing."""
        if self._mirrors and self._newest.get(partition) != offset:
            self._newest[partition] = offset
            self.put_all({partition: CommittedOffset(offset, metadata)})

    def put_all(self, offsets: Offsets) -> None:
        """Have these offsets written soon."""
        for mirror in self._mirrors if offsets else ():
            mirror.put(offsets)

    def close(self) -> None:
        """Wait a moment for what is not written yet."""
        clock = REAL.monotonic
        deadline = clock() + CLOSE_SECONDS
        for mirror in self._mirrors:
            mirror.close(max(0.0, deadline - clock()))


def mirrors_of_a_task(stores: Iterable[Plugin], context: StoreContext) -> Mirrors:
    """Return the mirrors that a task tells its committed offsets."""
    return _mirrors(stores, context, write_forward)


def mirrors_of_the_driver(stores: Iterable[Plugin], context: StoreContext, truth: OffsetStore) -> Mirrors:
    """Return the mirrors that the driver compares with the truth."""
    return _mirrors(stores, context, lambda mirror, offsets: put_right(mirror, offsets, truth))


def _mirrors(stores: Iterable[Plugin], context: StoreContext, write: Write) -> Mirrors:
    return Mirrors([Mirror(each.name, lambda each=each: open_store(each, context), write) for each in stores])  # type: ignore[misc]  # a lambda that remembers its store


def write_forward(mirror: OffsetStore, offsets: Offsets) -> None:
    """Write offsets; one that the mirror has passed is left to the driver, which knows the truth."""
    for partition, at in offsets.items():
        try:
            mirror.save(partition, at.offset, at.metadata)
        except Fenced:
            continue
        except CorruptOffset:
            mirror.reset(partition, at.offset, at.metadata)


def put_right(mirror: OffsetStore, offsets: Offsets, truth: OffsetStore) -> None:
    """
    Write offsets that the mirror has not reached, and set back what is ahead of the truth.

    Tasks go on meanwhile, so a mirror that is ahead of these offsets may be right. Tasks tell it nothing that is not
    committed: it is wrong only if it is ahead of an offset that is read after it.
    """
    found = mirror.load(offsets, stable=False)
    ahead = [each for each, at in found.items() if at.corrupt or at.offset > offsets[each].offset]
    later = truth.load(ahead, stable=True) if ahead else {}
    for partition in ahead:
        right = later.get(partition)
        if right is not None and (found[partition].corrupt or found[partition].offset > right.offset):
            mirror.reset(partition, right.offset, right.metadata)
    behind = {each: at for each, at in offsets.items() if each not in found or found[each].offset < at.offset}
    write_forward(mirror, {each: at for each, at in behind.items() if each not in ahead})
