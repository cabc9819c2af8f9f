"""
Tests of what an offset store promises when its server fails; needs pytest.

Subclass `OffsetStoreFaults` as `OffsetStoreContract`, and also implement `stop_server`, `start_server` and `corrupt`.
The server must persist data before it acknowledges it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import pytest

from app.errors import CorruptOffset, Fenced, Transient, Unreachable
from app.model import CommittedOffset, Partition
from app.offsets.contract import OffsetStore
from app.offsets.testing import StoreTests
from app.watchdog import LIMIT_SECONDS

T = TypeVar("T")
WRITERS = 2
PATIENCE_SECONDS = 300.0
"""How long a busy machine may take for what is no outage."""
TICK_SECONDS = 0.1


class OffsetStoreFaults(StoreTests):
    """What every store outside Kafka does when its server is down, hangs or holds garbage."""

    saves = 30
    """How often a test saves before it injects a fault; lower it if saves are slow."""

    def stop_server(self) -> None:
        """Kill the server, as a crash would."""
        raise NotImplementedError

    def start_server(self) -> None:
        """Start the server with its old data, and wait until it answers."""
        raise NotImplementedError

    def freeze_server(self) -> None:
        """Make the server stop answering while its connections stay open."""
        pytest.skip("this server cannot be frozen")

    def thaw_server(self) -> None:
        """Resume a frozen server."""

    def corrupt(self, partition: Partition) -> None:
        """Replace the offset of this partition with something that is not an offset."""
        raise NotImplementedError

    @contextmanager
    def server_down(self) -> Iterator[None]:
        """Stop the server for a while."""
        self.stop_server()
        try:
            yield
        finally:
            self.start_server()

    def test_a_server_that_is_down_at_the_start(self) -> None:
        """A store opens without its server, reports it as unreachable, and works as soon as it is up."""
        (partition,) = self.partitions(1)
        with self.server_down():
            opened = self.open_store()
            with pytest.raises(Unreachable):
                opened.load([partition], stable=True)
            with pytest.raises(Transient):
                opened.save(partition, 1, "")

        again(lambda: opened.save(partition, 2, "later"))

        assert {partition: CommittedOffset(2, "later")} == again(lambda: opened.load([partition], stable=True))
        opened.close()

    def test_a_server_that_is_down_for_a_while(self) -> None:
        """Saved offsets survive an outage; a failed save is an error and can be repeated."""
        (partition,) = self.partitions(1)
        with self.store() as store:
            again(lambda: store.save(partition, 5, "kept"))
            with self.server_down():
                with pytest.raises(Transient) as caught:
                    store.save(partition, 6, "")
                with pytest.raises(Transient):
                    store.reset(partition, 6, "")
                with pytest.raises(Unreachable):
                    store.load([partition], stable=True)

            assert (partition, 6) == (caught.value.partition, caught.value.offset)
            assert {partition: CommittedOffset(5, "kept")} == again(lambda: store.load([partition], stable=True))
            again(lambda: store.save(partition, 6, ""))
            assert {partition: CommittedOffset(6)} == again(lambda: store.load([partition], stable=True))

    def test_a_server_that_hangs(self) -> None:
        """A save gives up on a hanging server before the watchdog kills the worker."""
        (partition,) = self.partitions(1)
        with self.store() as store:
            again(lambda: store.save(partition, 5, ""))
            self.freeze_server()
            try:
                with _ticking() as took, pytest.raises(Transient):
                    store.save(partition, 6, "")
            finally:
                self.thaw_server()

            assert took() < LIMIT_SECONDS * 0.8
            again(lambda: store.save(partition, 7, ""))
            assert {partition: CommittedOffset(7)} == again(lambda: store.load([partition], stable=True))

    def test_the_connection_is_cut_in_the_middle_of_a_save(self) -> None:
        """After a crash the store holds the last acknowledged offset or the one in flight."""
        (partition,) = self.partitions(1)
        with self.store() as store:
            acknowledged = [0]
            saves = threading.Thread(target=_save_until_it_fails, args=(store, partition, acknowledged, self.saves))
            saves.start()
            _until(lambda: acknowledged[0] >= self.saves)
            with self.server_down():
                saves.join(PATIENCE_SECONDS)

            found = again(lambda: store.load([partition], stable=True))[partition]

            assert found.offset in (acknowledged[0], acknowledged[0] + 1)
            assert f"metadata of {found.offset}" == found.metadata
            again(lambda: store.save(partition, acknowledged[0] + 2, ""))
            assert {partition: CommittedOffset(acknowledged[0] + 2)} == again(
                lambda: store.load([partition], stable=True)
            )

    def test_corrupt_content_blocks_one_partition(self) -> None:
        """A corrupt offset is an error of its partition only, and a reset repairs it."""
        good, bad = self.partitions(2)
        with self.store() as store:
            again(lambda: store.save(good, 3, ""))
            again(lambda: store.save(bad, 4, ""))
            self.corrupt(bad)

            found = again(lambda: store.load([good, bad], stable=True))

            assert CommittedOffset(3) == found[good]
            assert found[bad].corrupt
            with pytest.raises(CorruptOffset):
                again(lambda: store.save(bad, 5, ""))
            assert again(lambda: store.load([bad], stable=True))[bad].corrupt
            again(lambda: store.save(good, 6, ""))
            again(lambda: store.reset(bad, 2, "mended"))
            assert {bad: CommittedOffset(2, "mended")} == again(lambda: store.load([bad], stable=True))

    def test_two_writers(self) -> None:
        """Two concurrent owners never move the offset back, and the larger one stays."""
        (partition,) = self.partitions(1)
        acknowledged: list[int] = []
        seen: list[int] = []
        with self.store() as reader:
            writers = [threading.Thread(target=self._write, args=(partition, n, acknowledged)) for n in range(WRITERS)]
            for writer in writers:
                writer.start()
            while any(writer.is_alive() for writer in writers):
                seen += [at.offset for at in again(lambda: reader.load([partition], stable=True)).values()]
            for writer in writers:
                writer.join()

            assert seen == sorted(seen)
            assert max(acknowledged) == again(lambda: reader.load([partition], stable=True))[partition].offset

    def _write(self, partition: Partition, writer: int, acknowledged: list[int]) -> None:
        """Save growing offsets, some of which the other writer has already passed."""
        dice, offset = random.Random(writer), 0  # noqa: S311  # a test
        with self.store() as store:
            for _ in range(self.saves):
                offset += dice.randint(1, 5)
                try:
                    # An optimistic store may give up after several tries. What may have been stored is saved again.
                    again(lambda: store.save(partition, offset, str(writer)))  # noqa: B023  # it is called at once
                except Fenced:
                    offset = again(lambda: store.load([partition], stable=True))[partition].offset
                else:
                    acknowledged.append(offset)


def _save_until_it_fails(store: OffsetStore, partition: Partition, acknowledged: list[int], least: int) -> None:
    """Save again and again. Of the first saves, one that a busy machine is late with does not count as a failure."""

    def save() -> None:
        offset = acknowledged[0] + 1
        store.save(partition, offset, f"metadata of {offset}")
        acknowledged[0] = offset

    while acknowledged[0] < least:
        again(save)
    with suppress(Transient):
        while True:
            save()


@contextmanager
def _ticking() -> Iterator[Callable[[], float]]:
    """Yield what tells how long the block has taken, without the time for which this machine stood still."""
    ended, ticks = threading.Event(), [0]

    def tick() -> None:
        while not ended.wait(TICK_SECONDS):
            ticks[0] += 1

    threading.Thread(target=tick, daemon=True).start()
    try:
        yield lambda: ticks[0] * TICK_SECONDS
    finally:
        ended.set()


def again(call: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """Repeat a call until the server answers."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (Transient, Unreachable):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
