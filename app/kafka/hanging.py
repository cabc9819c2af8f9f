"""
Finds the transactions that Kafka has ended everywhere but in a partition that had no leader at the time.

Kafka 4 skips a transaction's markers in a partition without a leader, as if its topic were deleted
(TransactionMarkerChannelManager; `getPartitionLeaderEndpoint` answers "unknown"). The transaction then hangs there, and
the end of the same producer id's next one decides both. So the first line of a transaction (each line, if keys choose
the partitions) names its source's committed offset. If that is still the committed offset, the transaction was not
committed and must be aborted again.

The partition may also be that of the group's offsets. Then an offset is pending, and stable reads of it fail. The
transaction's records show how to end it again.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from app.headers import TRANSACTION, Header, origin_of, ours, whole_number
from app.kafka import settings
from app.kafka.admin import ask_offsets
from app.kafka.consumer import look_up_leaders
from app.kafka.failures import is_end, timed_out
from app.kafka.records import read
from app.model import Partition, transactional_id
from app.records import Record

# How long the leader of a partition may take to return its end offsets.
ENDS_SECONDS = 3.0
READ_SECONDS = 10.0
# How many records at the end of a partition are searched for those of a transaction: first a few, then many.
LOOKS = (10_000, 300_000)
# How many are read at once of many partitions together, so that LOOK_SECONDS are enough: all looks read 3 million at
# most, and a core reads 200,000 a second.
MOST = 1_500_000
LOOK_SECONDS = 20.0


def mark(source: Partition, group: str, committed: int) -> Header:
    """Return the header that marks a transaction's lines: its source, and the committed offset at which it began."""
    return TRANSACTION, f"{transactional_id(group, source)}@{committed}".encode()


class Ends(NamedTuple):
    """The last stable offset and the high watermark of a partition; between them, transactions are open."""

    last_stable: int
    high_watermark: int


class Trace(Enum):
    """What a partition shows of a transaction."""

    COMMITTED = auto()  # its records are visible to read_committed readers
    ABORTED = auto()  # its records are aborted
    NOTHING = auto()  # it has no records there, or it hangs there too
    LATER = auto()  # a transaction from a later offset is visible: the offset was moved back since
    DELETED = auto()  # its records, if any, are deleted or too far back to search for


KNOWN = {Trace.COMMITTED, Trace.ABORTED}
"""What says how the transaction ended."""
DECISIVE = {*KNOWN, Trace.LATER}
"""What no other partition can change."""


class Own(NamedTuple):
    """A record from a source partition: its offset, the source offset that it names, and whether by our header."""

    at: int
    origin: int
    marked: bool


class Tail(NamedTuple):
    """The last records of a target from a source partition."""

    target: Partition
    ends: Ends
    records: Sequence[Own]
    placed: bool  # whether one of them is of the last transaction or an earlier one: the topic has not grown since
    whole: bool  # whether all of the last transaction's are included


class HangingTransactions:
    """Finds our own hanging transactions in the destinations' partitions; `kafka` holds the user's properties."""

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._kafka = kafka
        self.group = group
        self._lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._looked: dict[tuple[Partition, Partition], tuple[int, Own | None]] = {}
        """Up to which offset of a target a source's last record was looked for when that failed, and what was found."""

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, Ends]:
        """Return the ends of the partitions whose leader responds; raises KafkaException if none does."""
        stable = self._offsets(partitions, IsolationLevel.READ_COMMITTED)
        high = self._offsets(stable, IsolationLevel.READ_UNCOMMITTED)
        return {partition: Ends(stable[partition], high[partition]) for partition in high}

    def _offsets(self, partitions: Collection[Partition], isolation: IsolationLevel) -> dict[Partition, int]:
        admin = self.connect({each.topic for each in partitions})
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        found, failed = ask_offsets(
            admin, partitions, latest, isolation, wait=lambda each: each.result(2 * ENDS_SECONDS), seconds=ENDS_SECONDS
        )
        if failed:
            self._drop(admin)
        if not found:
            raise next(iter(failed.values()), timed_out())
        return found

    def connect(self, topics: Collection[str]) -> AdminClient:
        """
        Return a client that knows the leaders of these topics; raises KafkaException.

        If its first two requests are concurrent, an answer may be lost and it waits for its timeout (librdkafka 2.16).
        """
        with self._lock:
            if self._admin is None:
                configured: dict[str, Any] = {**settings.common(self._kafka)}
                admin = AdminClient(configured, logger=settings.SILENT)
                look_up_leaders(admin, topics, ENDS_SECONDS)
                self._admin = admin
            return self._admin

    def close(self) -> None:
        """Let the client end with its last reference."""
        with self._lock:
            self._admin = None

    def _drop(self, admin: AdminClient) -> None:
        """
        Reconnect after a failure: a client whose only broker was killed may never respond again, and one that knows an
        earlier leader epoch is refused (FENCED_LEADER_EPOCH) for minutes (librdkafka 2.16).
        """
        with self._lock:
            if self._admin is admin:
                self._admin = None

    def last_offsets(self, source: Partition, targets: Mapping[Partition, Ends]) -> dict[Partition, int]:
        """
        Return the source offset that the last unstable record of a source partition names, by target.

        A dead letter names its source without our header. The next call goes on where one has failed (KafkaException),
        because another application's transaction may be open for longer than can be read at once.
        """
        looked = {each: self._looked_at(source, each, ends) for each, ends in targets.items()}
        spans = {each: range(looked[each][0], ends.high_watermark) for each, ends in targets.items()}
        try:
            for record in self._read(spans, time.monotonic() + READ_SECONDS):
                target = record.partition
                looked[target] = record.offset + 1, self._own(record, source) or looked[target][1]
        except KafkaException:
            self._looked |= {(source, each): found for each, found in looked.items()}
            raise
        found = {each: last for each, (_, last) in looked.items() if last is not None}
        return {each: last.origin for each, last in found.items() if last.at >= targets[each].last_stable}

    def _looked_at(self, source: Partition, target: Partition, ends: Ends) -> tuple[int, Own | None]:
        at, last = self._looked.pop((source, target), (ends.last_stable, None))
        return (at, last) if ends.last_stable <= at <= ends.high_watermark else (ends.last_stable, None)

    def was_committed(
        self,
        source: Partition,
        ends: Mapping[Partition, Ends],
        began_at: int,
        before: Collection[Partition] = (),
        rest: Collection[Partition] = (),
    ) -> bool | None:
        """
        Return how the transaction that left its offset pending ended; None if its records do not show it.

        Raises KafkaException if a partition cannot be read now.
        If none of its records can be read it counts as aborted: it hangs there too, or it contained only the offset.

        Args:
            ends: the ends of every partition that its output goes to.
            began_at: the committed offset at which the transaction began.
            before: the partitions that its output went to while a topic had fewer. They are searched like those of now,
                unless a record of this or an earlier transaction shows that the topic has not grown since.
            rest: the partitions that its output went to while keys chose them. Most never had a record of this source,
                so only records that are found there count.
        """
        deadline = time.monotonic() + LOOK_SECONDS
        tails = self._tails(source, ends, began_at, LOOKS, deadline)
        traces = self._traces(source, tails, began_at, deadline)
        grown = {each.topic for each in ends} - {tail.target.topic for tail in tails if tail.placed}
        before = [each for each in before if each.topic in grown]
        if not traces & DECISIVE and before:
            tails = self._tails(source, self._all_ends(before), began_at, LOOKS, deadline)
            traces |= self._traces(source, tails, began_at, deadline)
        if not traces & DECISIVE and rest:
            tails = self._tails(source, self._all_ends(rest), began_at, [LOOKS[-1] // len(rest)], deadline)
            traces |= self._traces(source, tails, began_at, deadline) & KNOWN
        deleted = Trace.DELETED in traces and not traces & KNOWN
        return None if deleted or Trace.LATER in traces or traces >= KNOWN else Trace.COMMITTED in traces

    def _all_ends(self, partitions: Collection[Partition]) -> Mapping[Partition, Ends]:
        ends = self.ends(partitions)
        if silent := set(partitions).difference(ends):
            raise timed_out(f"{min(silent)} has no leader")
        return ends

    def _traces(self, source: Partition, tails: Sequence[Tail], began_at: int, deadline: float) -> set[Trace]:
        later = [each.origin for tail in tails for each in tail.records if each.marked and each.origin > began_at]
        span = range(began_at, min(later, default=sys.maxsize))
        return {self._trace(source, tail, span, deadline) for tail in tails}

    def _trace(self, source: Partition, tail: Tail, span: range, deadline: float) -> Trace:
        """Return what shows of the transaction with these source offsets, the first of which is where it began."""

        def visible(last: Own) -> bool:
            if last.at >= tail.ends.last_stable:
                self._require_first(source, tail.target, tail.ends, deadline)
                return False
            it = {tail.target: range(last.at, last.at + 1)}
            return next(self._read(it, deadline, "read_committed"), None) is not None

        later = [each for each in tail.records if each.marked and each.origin >= span.stop]
        of_it = [each for each in tail.records if each.origin in (span[:1] if each.marked else span)]
        if later and visible(later[-1]):
            return Trace.LATER
        if not of_it:
            return Trace.NOTHING if tail.whole else Trace.DELETED
        if visible(of_it[-1]):
            return Trace.COMMITTED
        return Trace.ABORTED if of_it[-1].at < tail.ends.last_stable else Trace.NOTHING

    def _tails(
        self, source: Partition, ends: Mapping[Partition, Ends], began_at: int, looks: Sequence[int], deadline: float
    ) -> list[Tail]:
        """Return the last records of a source partition, back to before the transaction where that is found."""
        tails: dict[Partition, Tail] = {}
        wanted = ends
        for most in sorted({min(look, MOST // len(ends)) for look in looks}):
            spans = {each: range(max(0, at.high_watermark - most), at.high_watermark) for each, at in wanted.items()}
            first = {each: span.stop for each, span in spans.items()}
            records: dict[Partition, list[Own]] = {each: [] for each in spans}
            for record in self._read(spans, deadline):
                first[record.partition] = min(first[record.partition], record.offset)
                if (own := self._own(record, source)) is not None:
                    records[record.partition].append(own)
            for each, found in records.items():
                placed = any(own.origin <= began_at or not own.marked for own in found)
                whole = first[each] == 0 or any(own.origin < began_at for own in found)
                tails[each] = Tail(each, wanted[each], found, placed, whole)
            begun = {each for each, found in records.items() if any(at.origin < began_at + at.marked for at in found)}
            wanted = {each: at for each, at in wanted.items() if spans[each].start > 0 and each not in begun}
            if not wanted:
                break
        return list(tails.values())

    def _require_first(self, source: Partition, target: Partition, ends: Ends, deadline: float) -> None:
        """
        Require that the first open transaction is one of this source, which therefore hangs.

        Behind another's open transaction, even an ended one is unreadable.
        """
        first = next(self._read({target: range(*ends)}, deadline), None)
        if first is None or self._own(first, source) is None:
            raise timed_out(f"{target} is blocked by another transaction")

    def _own(self, record: Record, source: Partition) -> Own | None:
        mine = transactional_id(self.group, source)
        owner, _, text = ours(record.headers).get(TRANSACTION, "").rpartition("@")
        if owner == mine and (began_at := whole_number(text)) is not None:
            return Own(record.offset, began_at, marked=True)
        if owner not in ("", mine):  # a replay has put a dead letter of the source back
            return None
        partition, offset = origin_of(record.headers) or (None, 0)
        return Own(record.offset, offset, marked=False) if partition == source else None

    def _read(
        self, spans: Mapping[Partition, range], deadline: float, isolation: str = "read_uncommitted"
    ) -> Iterator[Record]:
        """Yield the records of these offsets, with one consumer."""
        configured = settings.reader(self._kafka, self.group) | {"isolation.level": isolation}
        starts = {each: span.start for each, span in spans.items()}
        ends = {each: span.stop for each, span in spans.items()}
        for records in read(configured, starts, ends, fails=lambda error: not is_end(error)):
            yield from records
            if time.monotonic() > deadline:
                raise timed_out()
