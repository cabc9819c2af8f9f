"""
Replayable dead letters: the source record of each, and what earlier replays did with it.

A record is identified by its original topic, partition and offset, not by the place of its dead letter.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from app.headers import ERRORS, REPLAYS, origin_of, ours, theirs, whole_number
from app.model import CommittedOffset, Partition
from app.operate.dead_letters import Letter
from app.operate.reading import Span
from app.records import OutgoingRecord, Record

VERSION = "winnow-replay/1"
DESTINATIONS = 8
"""How many destinations a position covers; a replay into any other reads all dead letters."""
_CUT = re.compile(r"; cut from \d+ bytes, SHA-256 [0-9a-f]{64}$")


class Waiting(NamedTuple):
    """A dead letter that can be replayed, its source record as the service read it, and how often it failed again."""

    letter: Letter
    record: Record
    replays: int

    def is_of(self, topic_id: str) -> bool:
        """Whether its record was in the topic with this id; an unknown id matches any."""
        return topic_id in ("", self.letter.topic_id) or not self.letter.topic_id

    @classmethod
    def of(cls, letter: Letter) -> Waiting | None:
        """Restore a dead letter's source record; None if its origin is unknown or its value was cut."""
        stands = letter.record
        origin, own = origin_of(stands.headers), ours(stands.headers)
        if origin is None or _CUT.search(letter.detail):
            return None
        moved = whole_number(own.get(f"{ERRORS}timestamp", ""))
        timestamp = stands.timestamp if moved is None else moved
        record = Record(*origin, timestamp, stands.key, stands.value, theirs(stands.headers))
        return cls(letter, record, whole_number(own.get(REPLAYS, "")) or 0)


class Remainder(NamedTuple):
    """What a replay into a destination may read of one dead-letter partition."""

    destination: str
    settled: int
    """The offset before which every dead letter has been handled."""
    others: Mapping[str, int]
    """The same for other destinations, by topic."""
    span: Span
    committed: int
    """The committed offset of the last replay, which may have read further; -1 if there was none."""

    @classmethod
    def of(cls, destination: str, committed: CommittedOffset | None, wanted: Span, log_start: int) -> Remainder:
        """Return what earlier replays have left of the wanted offsets."""
        version, *words = (committed.metadata if committed else "").split() or [""]
        known = dict(word.partition("=")[::2] for word in words) if version == VERSION else {}
        others = {topic: offset for topic, text in known.items() if (offset := whole_number(text)) is not None}
        settled = max(log_start, others.pop(destination, 0))
        span = Span(max(wanted.begin, settled), wanted.end)
        return cls(destination, settled, others, span, committed.offset if committed else -1)

    @property
    def first_left(self) -> int | None:
        """The first offset that may be unhandled but is not read; None if all are read."""
        return self.settled if self.settled < self.span.begin else None

    def metadata(self, settled: int) -> str:
        """Return a position's metadata: where the next replay into each destination has to start."""
        latest = [*self.others.items()][1 - DESTINATIONS :]
        return " ".join((VERSION, *(f"{topic}={offset}" for topic, offset in [*latest, (self.destination, settled)])))


class ReplayLedger:
    """
    What replays have done: which dead letters they handled, and which records have a line in the destination.

    Records are told apart by topic id, too: a topic that was created again has other records at the same offsets. An
    unknown id counts as the same topic. An entry is a number in a set or a dict, because there may be millions.
    """

    def __init__(self, topic: str, destination: str) -> None:
        self.place = Partition(topic, 0)
        self._destination = destination
        self._replays: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
        """The highest handled replay count of each offset, by partition and topic id."""
        self._cleansed: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))

    def read(self, record: Record) -> None:
        """Read a record of the ledger's topic; up to 0.2 keys have no topic id and values end with a timestamp."""
        which, _, destination = (record.key or b"").decode(errors="replace").partition(">")
        source, _, topic_id = which.partition("#")
        partition, _, at = source.rpartition("@")
        offset = whole_number(at)
        replays = whole_number((record.value or b"").decode(errors="replace").partition(" ")[0])
        if replays is None or offset is None:
            return
        if not destination:
            self._replays[partition][topic_id][offset] = replays
        elif destination == self._destination:
            self._cleansed[partition][topic_id].add(offset)

    def holds(self, waiting: Waiting) -> bool:
        """Whether an earlier replay handled this dead letter or wrote its line."""
        partition, offset = str(waiting.record.partition), waiting.record.offset
        counts = (each for id_, each in self._replays.get(partition, {}).items() if waiting.is_of(id_))
        cleansed = (each for id_, each in self._cleansed.get(partition, {}).items() if waiting.is_of(id_))
        handled = max((each.get(offset, -1) for each in counts), default=-1)
        return any(offset in each for each in cleansed) or handled >= waiting.replays

    def failed(self, waiting: Waiting) -> tuple[Partition, OutgoingRecord]:
        """Note that a dead letter failed again; return the ledger record to write."""
        self._replays[str(waiting.record.partition)][waiting.letter.topic_id][waiting.record.offset] = waiting.replays
        return self._entry(waiting, "")

    def cleansed(self, waiting: Waiting) -> tuple[Partition, OutgoingRecord]:
        """Note that a dead letter's line is written; return the ledger record to write."""
        self._cleansed[str(waiting.record.partition)][waiting.letter.topic_id].add(waiting.record.offset)
        return self._entry(waiting, f">{self._destination}")

    def _entry(self, waiting: Waiting, destination: str) -> tuple[Partition, OutgoingRecord]:
        topic_id = f"#{waiting.letter.topic_id}" if waiting.letter.topic_id else ""
        key = f"{waiting.letter.origin}{topic_id}{destination}"
        return self.place, OutgoingRecord(key.encode(), b"%d" % waiting.replays, [], 0)
