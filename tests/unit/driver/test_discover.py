"""In which order the driver asks Kafka about the source partitions."""

from __future__ import annotations

from collections.abc import Iterable

from app.driver.discover import Discovery
from app.model import CommittedOffset, Partition, Watermarks
from tests.fakes.driver import DriverKafka
from tests.unit.driver.test_service import config

A = Partition("raw", 0)


class Moving(DriverKafka):
    """A Kafka in which a producer writes and a task commits, with every request of the driver."""

    def _goes_on(self) -> None:
        end = self.watermark[A][1] + 10
        self.watermark[A] = (0, end)
        self.committed[A] = CommittedOffset(end)

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
        found = super().watermarks(partitions)
        self._goes_on()
        return found

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> dict[Partition, CommittedOffset]:
        found = super().load(partitions, stable=stable)
        self._goes_on()
        return found


def test_an_offset_that_moves_meanwhile_does_not_look_out_of_range() -> None:
    """The end is asked last, so that no offset is committed after it that lies beyond it."""
    discovery = Discovery(config(), Moving(p0=(0, 100)).clients)

    assert not discovery.discover().blocked
    for at in discovery.refresh().values():
        assert at.committed is not None
        assert at.committed.offset <= at.watermarks.high_watermark
