"""
What is known of dead letters that can be replayed: which record each was, and what replays have done with it.

A record is known by its original topic, partition and offset, wherever its dead letter lies.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from app.headers import ERRORS, REPLAYS, origin_of, ours, theirs, whole_number
from app.model import Partition
from app.operate.letters import Letter
from app.records import DeadLetter, Record

_CUT = re.compile(r"; cut from \d+ bytes, SHA-256 [0-9a-f]{64}$")


class Waiting(NamedTuple):
    """
    A dead letter that can be replayed.

    Args:
        letter: as it lies there.
        record: what the service once read.
        replays: how often it has failed again.
    """

    letter: Letter
    record: Record
    replays: int

    @property
    def source(self) -> str:
        """Which record it was, as `topic-partition@offset`."""
        return self.letter.origin

    @classmethod
    def of(cls, letter: Letter) -> Waiting | None:
        """Return a dead letter as what it was; None where that is not known, or where its value was cut."""
        stands = letter.record
        origin, own = origin_of(stands.headers), ours(stands.headers)
        if origin is None or _CUT.search(letter.detail):
            return None
        stamp = whole_number(own.get(f"{ERRORS}timestamp", ""))
        return cls(
            letter,
            Record(
                *origin,
                stands.timestamp if stamp is None else stamp,
                stands.key,
                stands.value,
                theirs(stands.headers),
            ),
            whole_number(own.get(REPLAYS, "")) or 0,
        )


def is_number(text: str) -> bool:
    """Return whether a text is a number such as an offset."""
    return text.isascii() and text.isdecimal()


class Ledger:
    """
    What replays have done: which dead letters are handled, and which of their records lie in the destination.

    The timestamp of a record is part of what is remembered: a topic that was created again has other records at the
    same offsets.

    Args:
        topic: the topic that holds it.
        destination: the topic that lines go to.
    """

    def __init__(self, topic: str, destination: str) -> None:
        self.place = Partition(topic, 0)
        self._destination = destination
        self._replays: dict[str, tuple[int, int]] = {}
        self._cleansed: dict[str, int] = {}

    def read(self, record: Record) -> None:
        """Take in one record of the ledger's topic."""
        source, _, destination = (record.key or b"").decode(errors="replace").partition(">")
        replays, _, timestamp = (record.value or b"").decode(errors="replace").partition(" ")
        if not (is_number(replays) and timestamp.removeprefix("-").isdecimal()):
            return
        if not destination:
            self._replays[source] = int(replays), int(timestamp)
        elif destination == self._destination:
            self._cleansed[source] = int(timestamp)

    def holds(self, waiting: Waiting) -> bool:
        """Whether an earlier replay has handled this dead letter, or written its line."""
        timestamp = waiting.record.timestamp
        replays, when = self._replays.get(waiting.source, (-1, timestamp))
        return self._cleansed.get(waiting.source) == timestamp or (when == timestamp and replays >= waiting.replays)

    def failed(self, waiting: Waiting) -> tuple[Partition, DeadLetter]:
        """Remember that a dead letter has gone back; return what is to be written."""
        self._replays[waiting.source] = waiting.replays, waiting.record.timestamp
        return self._entry(waiting.source, waiting)

    def cleansed(self, waiting: Waiting) -> tuple[Partition, DeadLetter]:
        """Remember that the line of a dead letter is written; return what is to be written."""
        self._cleansed[waiting.source] = waiting.record.timestamp
        return self._entry(f"{waiting.source}>{self._destination}", waiting)

    def _entry(self, key: str, waiting: Waiting) -> tuple[Partition, DeadLetter]:
        value = f"{waiting.replays} {waiting.record.timestamp}"
        return self.place, DeadLetter(key.encode(), value.encode(), [], 0)
