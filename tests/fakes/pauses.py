"""Pauses of the service, and the offsets that mark one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from app.driver.pause import PauseMark
from app.errors import Transient
from app.model import CommittedOffset, Partition, Pause

PAUSE = Pause(5_000, "ops 1")


class PausedFor(PauseMark):
    """A pause that lasts for a number of requests."""

    def __init__(self, times: int) -> None:
        super().__init__(PauseOffsets(), "clean", [])
        self.answers = [PAUSE] * times
        self.last: Pause | None = None
        self.renewed: list[Pause] = []

    def read(self) -> Pause | None:
        self.last = self.answers.pop() if self.answers else None
        return self.last

    def set(self, pause: Pause) -> None:
        raise AssertionError("only a person sets a pause")

    def renew(self) -> None:
        assert self.last, "nothing is paused"
        self.renewed.append(self.last)

    def clear(self) -> None:
        raise AssertionError("only a person ends a pause")


class PauseOffsets:
    """The offsets of the group that marks a pause, in memory."""

    transactional = True

    def __init__(self) -> None:
        self.stored: dict[Partition, CommittedOffset] = {}
        self.trouble: Exception | None = None
        """Why nothing can be read."""
        self.denied: dict[str, Exception] = {}
        """Why topics take no mark."""
        self.missing: set[str] = set()
        """Topics that do not exist: with them, Kafka has deleted their offsets."""
        self._meanwhile: tuple[int, Callable[[], object]] | None = None

    def before_request(self, number: int, act: Callable[[], object]) -> None:
        """Let something happen just before the request with this number, the next being 0."""
        self._meanwhile = number, act

    def last_act(self) -> None:
        """Let it happen now, if there were fewer requests."""
        if self._meanwhile is not None:
            (_, act), self._meanwhile = self._meanwhile, None
            act()

    def _request(self) -> None:
        if self._meanwhile is None:
            return
        number, act = self._meanwhile
        self._meanwhile = (number - 1, act) if number else None
        if not number:
            act()

    def delete(self, topic: str) -> None:
        self.stored = {place: at for place, at in self.stored.items() if place.topic != topic}

    def load(self, partitions: Iterable[Partition], *, stable: bool) -> Mapping[Partition, CommittedOffset]:
        assert not stable, "nobody commits in that group in a transaction"
        self._request()
        if self.trouble:
            raise self.trouble
        return {each: self.stored[each] for each in partitions if each in self.stored}

    def save(self, partition: Partition, offset: int, metadata: str) -> None:
        raise AssertionError("a mark may go back")

    def reset(self, partition: Partition, offset: int, metadata: str) -> None:
        self._request()
        if partition.topic in self.denied:
            raise self.denied[partition.topic]
        if partition.topic in self.missing:
            raise Transient(partition, "unknown topic")
        self.stored[partition] = CommittedOffset(offset, metadata)

    def close(self) -> None:
        pass
