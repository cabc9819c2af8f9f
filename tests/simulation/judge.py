"""
Finds anomalies while a schedule runs, by the names of `tests.chaos.checker`.

It sees everything: each record and each offset carries the `serial` of the transaction that its writer meant, which no
client can read.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from app.model import Owner, Partition
from app.offsets.metadata import OffsetMetadata
from app.operate.findings import Defect, Finding
from app.operate.ranges import Range
from app.runtime import Timings
from tests.simulation.history import History
from tests.simulation.kafka import Cluster, Fate, Log, Stored

REPLAYED = b"ok !"
"""How the line of a dead letter begins that a replay has cleansed."""
LOOK_SECONDS = 0.5
"""Whoever looks for others does so at least as often."""


class Anomaly(NamedTuple):
    """What must never happen, and an example."""

    name: str
    example: str

    def __str__(self) -> str:
        return f"{self.name}: {self.example}"


class Identity(NamedTuple):
    """A source record: its partition, and its number in it, which is what its text says."""

    partition: int
    number: int

    @classmethod
    def of(cls, text: bytes | None) -> Identity | None:
        """Return the identity in a text such as `3:17` or `!3:17`, or in the line `ok 3:17`."""
        if not text:
            return None
        first, _, second = text.removeprefix(b"ok ").lstrip(b"!").partition(b":")
        return cls(int(first), int(second)) if first.isdigit() and second.isdigit() else None


class Judge:
    """
    Reads the sink and the dead letters as a read_committed reader does, after each marker.

    Args:
        source: the cluster of the source.
        sink: the cluster of sink, dead letters and offsets.
        topics: the source, the sink, and the dead letters.
        stands_for: returns the partition under which the offset of a source partition is stored.
        goes_on: returns whether the service on a host works undisturbed.
        repeats: whether lines may come again, and an offset may go back, because some service works at least once.
        from_the_end: whether the group starts at the ends of the partitions that exist when it begins.
    """

    def __init__(
        self,
        source: Cluster,
        sink: Cluster,
        *,
        group: str,
        topics: tuple[str, str, str],
        stands_for: Callable[[Partition], Partition],
        goes_on: Callable[[str], bool],
        history: History,
        repeats: bool = False,
        from_the_end: bool = False,
    ) -> None:
        self._source, self._sink, self._group = source, sink, group
        self._raw, self._outputs = topics[0], topics[1:]
        self._stands_for, self._goes_on = stands_for, goes_on
        self._history = history
        self._repeats, self._from_the_end = repeats, from_the_end
        self._added: set[Partition] = set()
        """The source partitions that were created after the group began: it reads all of them."""
        self.anomalies: list[Anomaly] = []
        self.seen: dict[Identity, str] = {}
        self.again: set[Identity] = set()
        """The records that readers got more than once, whether that is excused or not."""
        self.replayed: dict[Identity, str] = {}
        """Where the line of each replayed dead letter is."""
        self._read: dict[Partition, int] = {}
        self._last: dict[tuple[str, int], int] = {}
        self._fates: dict[int, Fate] = {}
        self._with_offset: set[int] = set()
        self._stored: dict[Partition, int] = {}
        self.earlier: defaultdict[Partition, list[Stored]] = defaultdict(list)
        """All committed offsets of each source partition, the newest last, with the times at which they were readable."""
        self.lost_at = -math.inf
        """When the sink's cluster last forgot the offsets."""
        self.asked: set[Partition] = set()
        """The source partitions whose offset may go back: an operator has set it, or the log was cut."""
        self._hanging: dict[int, Fate] = {}
        """The transactions whose end was not written everywhere for want of a leader, and how they ended."""
        self.gaps: list[int] = []
        """The transactions that ended otherwise in the end because of one that hung (docs/guarantees.md, Known gaps)."""
        self.in_gaps: set[Identity] = set()
        """The records of those transactions, which may be lost or come again."""
        self.lost_in_gaps: set[Identity] = set()
        """Those that no reader got in the end."""
        self.doubled_in_gaps: set[Identity] = set()
        """Those that readers got twice."""
        self._cuts: dict[Partition, int] = {}
        """The offset of each partition when its log was cut."""
        self._forgotten: dict[Partition, int] = {}
        """The same, once the cut may be forgotten."""
        self._used_twice: dict[Partition, int] = {}
        """Below this offset, a record that a cut has taken may have left a line or a dead letter."""
        self.excused: set[Identity] = set()
        """Records that no reader need get: Kafka has deleted them, or an operator has passed them over."""
        self.may_come_again: set[Identity] = set()
        """Records that an operator has made come again."""
        self._settled: Mapping[int, int] = {}
        """The number of each partition's first record that must not come again although services work at least once."""
        sink.marked = self._marked
        sink.offset_sent = self._with_offset.add
        sink.skipped = self._skipped

    def found(self, name: str, example: str) -> None:
        self.anomalies.append(Anomaly(name, example))
        self._history.note("judge", name, example)

    def _marked(self, place: Partition | str, serials: set[int], fate: Fate) -> None:
        # What a fenced producer sends still joins a transaction of its epoch that hangs there.
        hanging = not serials.isdisjoint(self._hanging)
        for serial in serials:
            known = self._fates.setdefault(serial, fate)
            if known is not fate and (hanging or self._hanging.get(serial) is Fate.COMMITTED):
                self._gap(serial)
            elif known is not fate:
                self.found("torn transaction", f"transaction {serial} is {known} in one place and {fate} in {place}")
            if fate is Fate.COMMITTED and serial not in self._with_offset and hanging:
                self._gap(serial)
            elif fate is Fate.COMMITTED and serial not in self._with_offset:
                self.found("torn transaction", f"the lines of transaction {serial} are readable without its offset")
        if not isinstance(place, Partition):
            self._look_at_offsets()
        elif place.topic in self._outputs:
            if self._repeats:  # the marker may be a replay's, whose dead letters have none
                self.look()
            else:
                self._look(self._sink.log(place))

    def _skipped(self, place: Partition | str, serials: set[int], fate: Fate) -> None:
        for serial in serials:
            self._hanging.setdefault(serial, fate)
            self._fates.setdefault(serial, fate)
            self._history.note("kafka", "a marker is skipped", f"transaction {serial}, {fate}, hangs in {place}")

    @property
    def hangs(self) -> bool:
        """Whether the end of some transaction was lost."""
        return bool(self._hanging)

    def _gap(self, serial: int) -> None:
        """Excuse the records of a transaction whose end was lost: in the sink they are lost, or they come again."""
        self.gaps.append(serial)
        self._history.note("judge", "known gap", f"transaction {serial}")
        for name in self._outputs:
            for log in self._sink.topics[name].logs:
                for offset in range(log.start, log.end):
                    if log[offset].serial == serial and (who := Identity.of(log[offset].value)):
                        self.in_gaps.add(who)
                        self.may_come_again.add(who)

    def _look_at_offsets(self) -> None:
        group = self._sink.groups[self._group]
        for log in self._source.topics[self._raw].logs:
            partition, stored = log.partition, group.stored.get(self._stands_for(log.partition))
            if stored is None:
                continue
            if partition not in self._stored and self._from_the_end and partition not in self._added:
                self.excused |= self._identities(log, log.start, stored.offset)
                if partition in self._cuts:
                    self._forgotten[partition] = stored.offset
            before = self._stored.get(partition, 0)
            if stored.offset < before and partition not in self.asked and not self._repeats:
                self.found("offset moved back", f"{partition}: from {before} to {stored.offset}")
            earlier = self.earlier[partition]
            if earlier and self._is_taken_back(earlier[-1], stored):
                self.found("taken back", f"{partition}: {_host(stored)} commits after {_host(earlier[-1])}")
            if not earlier or earlier[-1][:3] != stored[:3]:  # all but the time at which it was sent
                earlier.append(stored._replace(at=self._sink.clock.now))
            self._stored[partition] = stored.offset

    def _is_taken_back(self, before: Stored, stored: Stored) -> bool:
        """
        Return whether an earlier generation has fenced a later one that shows signs of life.

        At least once nothing is fenced: a save may pass the one that takes the partition over.
        """
        host, generation = _host(before), _owner(before).generation
        if self._repeats or not _host(stored) or _owner(stored).generation >= generation or not self._goes_on(host):
            return False
        now = self._sink.clock.now
        return self.committed(host, now - Timings().gone, now)

    def look(self) -> None:
        """
        Read on in all outputs, because what is written outside transactions is readable without a marker.

        The dead letters come first: a replayed line follows its dead letter.
        """
        for name in reversed(self._outputs):
            for log in self._sink.topics[name].logs:
                self._look(log)

    def _look(self, log: Log) -> None:
        """Read on in the sink or the dead letters, up to the last stable offset."""
        at = self._read.get(log.partition, 0)
        while at < log.stable:
            entry = log[at]
            if not entry.control and entry.fate is Fate.COMMITTED:
                self._saw(log.partition, at, entry.value)
            at += 1
        self._read[log.partition] = at

    def _saw(self, place: Partition, offset: int, value: bytes | None) -> None:
        who, where = Identity.of(value), f"{place}@{offset}"
        if who is None:
            return self.found("phantom", f"{where}: {value!r}")
        if value is not None and value.startswith(REPLAYED):
            return self._saw_replayed(who, where)
        if who in self.seen:
            self.again.add(who)
            if who in self.in_gaps:
                self.doubled_in_gaps.add(who)
            if who in self.may_come_again or (
                self._repeats and who.number < self._settled.get(who.partition, math.inf)
            ):
                return None
            return self.found("duplicated", f"{who.partition}:{who.number} at {self.seen[who]} and {where}")
        self.seen[who] = where
        last = self._last.get((place.topic, who.partition), -1)
        if who.number < last and who not in self.may_come_again:
            self.found("reordered", f"{who.partition}:{who.number} after {who.partition}:{last} at {where}")
        self._last[place.topic, who.partition] = max(last, who.number)
        return None

    def _saw_replayed(self, who: Identity, where: str) -> None:
        """Judge the line of a dead letter: it follows that dead letter, once."""
        if who not in self.seen:
            self.found("phantom", f"{who.partition}:{who.number} at {where} is replayed, but was no dead letter")
        if who in self.replayed and who not in self.in_gaps:
            self.found("duplicated", f"{who.partition}:{who.number} is replayed at {self.replayed[who]} and {where}")
        if who in self.replayed:
            self.again.add(who)
        self.replayed[who] = where

    def audited(
        self,
        findings: Iterable[Finding],
        judged: Mapping[Partition, Range],
        *,
        there: Collection[Identity],
        seen: Collection[Identity],
        again: Collection[Identity],
    ) -> None:
        """
        Compare an audit with what readers got: it must report each record that is lost or doubled, and no other as such.

        Where a log was cut, an earlier record may have left a dead letter with the offset of a later one. The audit then
        reports the later one as changed or doubled.

        Args:
            judged: what it had to judge completely.
            there: the records in the source when it began; after a cut, later ones may get offsets that it has already read.
            seen: the records that readers had got when it began.
            again: those that they had got more than once.
        """
        self.look()
        told: dict[Defect, set[Identity]] = {defect: set() for defect in Defect}
        twice_used: set[Identity] = set()
        for each in findings:
            if each.origin is not None and (who := self._at(*each.origin)):
                told[each.kind].add(who)
                if each.origin.offset < self._used_twice.get(each.origin.partition, 0):
                    twice_used.add(who)
        wrong = (told[Defect.LOST] & set(seen)) | (told[Defect.DOUBLED] - self.again - twice_used)
        reported = told[Defect.LOST] | told[Defect.CHANGED]
        for partition, found in judged.items():
            for who, offset in self._readable(self._source.log(partition)):
                if offset in found and who in there:
                    hidden = who not in self.seen and who not in reported
                    if hidden or (who in again and who not in told[Defect.DOUBLED]):
                        wrong.add(who)
        if wrong:
            self.found("audit-lies", f"{sorted(wrong)}; told {told}")

    def _at(self, partition: Partition, offset: int) -> Identity | None:
        log = self._source.log(partition)
        return Identity.of(log[offset].value) if log.start <= offset < log.end else None

    # What people and Kafka do on purpose

    def deleted(self, log: Log, before: int) -> None:
        """Excuse the records that retention deletes; some may be unread."""
        self.excused |= self._identities(log, log.start, before)

    def committed(self, host: str, begin: float, end: float) -> bool:
        """Return whether the service on a host has committed between two times, so that others must have seen it."""
        return any(
            begin <= stored.at <= end and _host(stored) == host and _is_seen(each, at)
            for each in self.earlier.values()
            for at, stored in enumerate(each)
        )

    def named(self, host: str, at: float) -> bool:
        """Return whether an offset named the service on a host at some time."""
        last = [[stored for stored in each if self.lost_at < stored.at <= at][-1:] for each in self.earlier.values()]
        return any(_host(stored) == host for each in last for stored in each)

    def never_took_all(self, generation: int, seconds: float) -> bool:
        """Return whether generations from this one on never took some partition, and committed for a shorter time."""
        taken = [
            [stored.at for stored in each if _owner(stored).generation >= generation]
            for each in self.earlier.values()
            if each
        ]
        times = [at for each in taken for at in each]
        return not all(taken) and max(times, default=0.0) - min(times, default=0.0) < seconds

    def added(self, log: Log) -> None:
        """Expect all records of a new source partition, if the group has begun."""
        if self._stored:
            self._added.add(log.partition)

    def cut(self, log: Log) -> None:
        """Allow the offset to go back: the log is about to lose its end in an unclean election."""
        self.asked.add(log.partition)
        self._cuts[log.partition] = cut = max(self._stored.get(log.partition, 0), self._cuts.get(log.partition, 0))
        # At least once, lines are readable before their offset.
        self._used_twice[log.partition] = max(log.end if self._repeats else cut, self._used_twice.get(log.partition, 0))
        earlier = self.earlier[log.partition]
        if earlier and OffsetMetadata.parse(earlier[-1].metadata).read is None:  # no leader epoch is known
            self._forgotten[log.partition] = self._cuts[log.partition]

    def waits_for_a_person(self) -> bool:
        """Return whether an offset is pending for good, which the service reports (`OffsetPending`, `OffsetVanished`)."""
        group = self._sink.groups[self._group]
        return any(not group.open_serials(each).isdisjoint(self._hanging) for each in group.pending)

    def set_to(self, log: Log, offset: int) -> None:
        """Expect the records from this offset on again, and none that are passed over."""
        self.asked.add(log.partition)
        self.excused |= self._identities(log, self._stored.get(log.partition, offset), offset)
        if (cut := self._cuts.get(log.partition)) is not None:  # an offset that was set names no leader epoch
            read = max(cut, self._stored.get(log.partition, 0))  # a commit may have been on its way
            self._forgotten[log.partition] = max(read, self._forgotten.get(log.partition, 0))
        self.may_come_again |= self._identities(log, offset, log.end)

    def _identities(self, log: Log, begin: int, end: int) -> set[Identity]:
        texts = (log[offset].value for offset in range(max(begin, log.start), min(end, log.end)))
        return {who for text in texts if (who := Identity.of(text)) is not None}

    # The end

    def settle(self, written: Mapping[int, int]) -> None:
        """Expect what is written from now on once: no service shares a partition with another any more."""
        self._settled = dict(written)

    def drained(self) -> bool:
        """Return whether everything readable is done, and no transaction is open."""
        self.look()
        group = self._sink.groups[self._group]
        if group.pending or any(log.ongoing for name in self._outputs for log in self._sink.topics[name].logs):
            return False
        return not any(log.ongoing or self._lags(log) for log in self._source.topics[self._raw].logs)

    def _lags(self, log: Log) -> bool:
        at = self._stored.get(log.partition, 0)
        return any(offset >= at or not self._is_done(who, log.partition, offset) for who, offset in self._readable(log))

    def in_the_source(self) -> set[Identity]:
        """Return the records that a read_committed reader of the source would get now."""
        return {who for log in self._source.topics[self._raw].logs for who, _ in self._readable(log)}

    def _readable(self, log: Log) -> Iterator[tuple[Identity, int]]:
        """Yield the records that a read_committed reader of the source gets."""
        for offset in range(log.start, log.stable):
            entry = log[offset]
            if not entry.control and entry.fate is Fate.COMMITTED and (who := Identity.of(entry.value)):
                yield who, offset

    def _is_done(self, who: Identity, partition: Partition, offset: int) -> bool:
        return (
            who in self.seen or who in self.excused or who in self.in_gaps or offset < self._forgotten.get(partition, 0)
        )

    def what_is_left(self) -> str:
        """Describe why it is not drained."""
        pending = self._sink.groups[self._group].pending
        sources = self._source.topics[self._raw].logs
        outputs = [log for name in self._outputs for log in self._sink.topics[name].logs]
        parts = [f"{log.partition} at {self._stored.get(log.partition)} of {log.stable}" for log in sources]
        parts += [f"{log.partition} open at {log.ongoing}" for log in outputs if log.ongoing]
        return "; ".join([*parts, f"pending {pending}"] if pending else parts)

    def conclude(self) -> None:
        """Compare the outputs with the source, once it is drained."""
        self.look()
        for log in self._source.topics[self._raw].logs:
            for who, offset in self._readable(log):
                if who not in self.seen and who in self.in_gaps:
                    self.lost_in_gaps.add(who)
                if not self._is_done(who, log.partition, offset):
                    self.found("lost", f"{who.partition}:{who.number} of {log.partition}@{offset}")


def _owner(stored: Stored) -> Owner:
    return OffsetMetadata.parse(stored.metadata).owner


def _host(stored: Stored) -> str:
    return _owner(stored).host


def _is_seen(each: Sequence[Stored], at: int) -> bool:
    """Return whether a commit differs from the one before, and is not overwritten by somebody else before the next look."""
    stored = each[at]
    others = (later.at for later in each[at:] if _host(later) != _host(stored))
    return (not at or each[at - 1][:2] != stored[:2]) and next(others, math.inf) - stored.at >= LOOK_SECONDS
