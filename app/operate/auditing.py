"""Reads what `winnow audit` compares, with readers of its own that see committed records only. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from app.driver.clients import Topics
from app.errors import NotUsable
from app.model import CommittedOffset, Partition, TaskConfig
from app.offsets.metadata import OffsetMetadata
from app.operate.audit import Comparison, Range, Unit
from app.operate.lag import PartitionLag
from app.records import Fate, Record

MARGIN = 2_000
"""How many records on each side of those that are judged are read, too: their lines may stand between."""
LATER_MS = 600_000
"""Lines are looked for among those that are so much younger; only if some are missing, up to the end."""
STABLE_SECONDS, LOOK_SECONDS = 30.0, 0.2


class Reader(Protocol):
    """Reads committed records; see `app.kafka.records`."""

    def batches(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int] | None = None
    ) -> Iterable[list[Record]]:
        """Yield the records of some partitions between these offsets."""
        ...


class Cleanse(Protocol):
    """Makes of records what a task would make of them; see `app.executor.fates`."""

    def of(self, records: Sequence[Record]) -> list[Fate]:
        """Return what becomes of each record, in order."""
        ...


class Auditor:
    """
    Compares windows of the source with what became of them.

    Args:
        cleanse: what tasks make of records.
        source: reads the source.
        output: reads the sink and the dead letters.
        destinations: tells where these begin and end.
        timeless: whether the sink gives lines the time of writing.
        read: called with the number of source records of each batch.
    """

    def __init__(
        self,
        cleanse: Cleanse,
        source: Reader,
        output: Reader,
        destinations: Topics,
        read: Callable[[int], object] = lambda _: None,
        *,
        timeless: bool = False,
    ) -> None:
        self._cleanse = cleanse
        self._source = source
        self._output = output
        self._destinations = destinations
        self._read = read
        self._timeless = timeless

    def compare(self, unit: Unit, window: Mapping[Partition, Range]) -> Comparison:
        """
        Return what was found of a window.

        Raises:
            Unreachable, NotUsable: Kafka does not answer, or refuses.
        """
        comparison = Comparison(window, timeless=self._timeless)
        starts = {partition: each.known_from for partition, each in window.items()}
        ends = {partition: each.known_to for partition, each in window.items()}
        for records in self._source.batches(starts, ends):
            if records:
                comparison.expect(self._cleanse.of(records))
                self._read(sum(each.offset in window[each.partition] for each in records))
        if comparison.oldest is not None:
            self._look(unit.lines, comparison, comparison.line, lambda: comparison.lines_missing)
            if comparison.lines_missing and self._timeless:  # a record may claim to be younger than its line
                self._look_before(unit.lines, comparison, comparison.line)
            self._look(unit.letters, comparison, comparison.letter, lambda: comparison.letters_missing)
            if comparison.letters_missing:  # a dead letter may have another time than its record, also an earlier one
                self._look_before(unit.letters, comparison, comparison.letter)
        return comparison

    def _look(
        self,
        partitions: Collection[Partition],
        comparison: Comparison,
        take: Callable[[Record], object],
        missing: Callable[[], bool],
    ) -> None:
        assert comparison.oldest is not None  # the caller has looked
        assert comparison.newest is not None
        ends = {each: marks.last_stable for each, marks in self._destinations.watermarks(partitions).items()}
        starts = self._offsets_at(ends, comparison.oldest)
        middle = self._offsets_at(ends, comparison.newest + LATER_MS)
        self._take(starts, middle, take)
        if missing():
            self._take(middle, ends, take)

    def _look_before(
        self, partitions: Collection[Partition], comparison: Comparison, take: Callable[[Record], object]
    ) -> None:
        assert comparison.oldest is not None  # the caller has looked
        marks = self._destinations.watermarks(partitions)
        ends = self._offsets_at({each: at.last_stable for each, at in marks.items()}, comparison.oldest)
        self._take({each: at.log_start for each, at in marks.items()}, ends, take)

    def _offsets_at(self, ends: Mapping[Partition, int], milliseconds: int) -> dict[Partition, int]:
        found = self._destinations.offsets_at(ends, milliseconds)
        return {each: end if (at := found.get(each)) is None else min(at, end) for each, end in ends.items()}

    def _take(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int], take: Callable[[Record], object]
    ) -> None:
        for records in self._output.batches(starts, ends):
            for record in records:
                take(record)


def refuse_lost_times(tasks: TaskConfig) -> None:
    """
    Make sure that lines can be known.

    Raises:
        NotUsable: they have neither the time of their record nor a header that names it.
    """
    if tasks.sink.append_time and not tasks.lineage:
        cause = (
            f"the sink {tasks.sink.topic!r} has message.timestamp.type LogAppendTime: its lines have lost the time of "
            "their records, by which an audit knows them"
        )
        cure = "set lineage.headers to true, which serves lines that are written from then on, and audit those"
        raise NotUsable(cause, cure)


def wait_until_stable(
    destinations: Topics, partitions: Collection[Partition], sleep: Callable[[float], object] = time.sleep
) -> bool:
    """
    Wait until all that lies in partitions now is committed or aborted; return whether it is.

    An offset may be committed a moment before the lines of the same transaction can be read.
    """
    wanted = {each: marks.high_watermark for each, marks in destinations.watermarks(partitions).items()}
    for _ in range(round(STABLE_SECONDS / LOOK_SECONDS)):
        now = destinations.watermarks(wanted)
        if all(each in now and now[each].last_stable >= end for each, end in wanted.items()):
            return True
        sleep(LOOK_SECONDS)
    return False


def ranges(
    found: Collection[PartitionLag],
    later: Mapping[Partition, CommittedOffset],
    begins: Mapping[Partition, int | None],
    ends: Mapping[Partition, int | None],
) -> dict[Partition, Range]:
    """
    Return what is to be judged of each source partition: what the service has done between two times.

    Args:
        found: the committed offsets.
        later: the same, read after the sink.
        begins: the first offset at or after the first time; None where no record is that late.
        ends: the same of the last time; nothing without one.
    """
    judged = {}
    for at in found:
        begin = begins.get(at.partition)
        if at.offset is None or at.watermarks is None or begin is None:
            continue
        end = ends.get(at.partition)
        end = at.offset if end is None else min(end, at.offset)
        begin = max(begin, _first_done(at))
        known = later.get(at.partition)
        known_to = at.offset if known is None else max(at.offset, known.offset)
        if begin < end:
            known_from = max(at.watermarks.log_start, begin - MARGIN)
            judged[at.partition] = Range(begin, end, known_from, max(end, min(known_to, end + MARGIN)))
    return judged


def _first_done(at: PartitionLag) -> int:
    """Return the offset at which the group's work on a partition began, as far as it is known."""
    metadata = OffsetMetadata.parse(at.committed.metadata if at.committed else "")
    return metadata.since if metadata.is_ours else 0
