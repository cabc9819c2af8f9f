"""Computes the new offsets of `winnow offsets reset`, whose options are those of kafka-consumer-groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from app.config import Config
from app.cures import RESTART, SHOW_OFFSETS
from app.driver.clients import Clients
from app.errors import ConfigError, PartlySet, ServiceRuns
from app.model import CommittedOffset, Partition, in_ranges, numbers_by_topic
from app.offsets.contract import is_local
from app.offsets.metadata import OffsetMetadata
from app.operate.lag import NO_ANSWER, PartitionLag
from app.operate.reading import FirstOffsets, Offsets
from app.operate.running import StoppedService

NO_OFFSET = "the group has no offset in this partition"
OF_ANOTHER_LOG = "its offset is not of this log: choose the beginning, the end, a time or an offset"


class Goal(StrEnum):
    """The kind of target."""

    EARLIEST = "to-earliest"
    LATEST = "to-latest"
    CURRENT = "to-current"
    OFFSET = "to-offset"
    SHIFT = "shift-by"
    TIME = "to-datetime"


class Target(NamedTuple):
    """Where offsets go; the value is an offset, a number of offsets, or milliseconds since the epoch."""

    goal: Goal
    value: int = 0


class Reset(NamedTuple):
    """A partition's new offset, None if it cannot be set; `note` says why that, or why it differs from the request."""

    at: PartitionLag
    offset: int | None
    note: str = ""
    is_left: bool = False
    """Whether there is nothing to set, which does not keep the other partitions from being set."""

    @property
    def is_refused(self) -> bool:
        return self.offset is None and not self.is_left

    @property
    def committed(self) -> CommittedOffset:
        assert self.offset is not None  # only resets without a problem are carried out
        metadata = OffsetMetadata.restarting(self.at.committed, self.offset, self.at.topic_id)
        return CommittedOffset(self.offset, metadata)

    @property
    def change(self) -> int | None:
        """How many offsets it moves: forward skips records, back reads them again."""
        return None if self.offset is None or self.at.offset is None else self.offset - self.at.offset

    def as_json(self) -> dict[str, Any]:
        return {
            **self.at.partition.as_json(),
            "current_offset": self.at.offset,
            "new_offset": self.offset,
            "change": self.change,
            "note": self.note or None,
        }


def resets(found: Collection[PartitionLag], target: Target, clients: Clients) -> list[Reset]:
    asked = [at.partition for at in found if target.goal is Goal.TIME and at.watermarks is not None]
    starts = clients.topics.offsets_at(asked, target.value) if asked else {}
    return [_reset(at, target, starts) for at in found]


def _reset(at: PartitionLag, target: Target, starts: FirstOffsets) -> Reset:
    if at.watermarks is None or (target.goal is Goal.TIME and at.partition not in starts):
        return Reset(at, None, NO_ANSWER)
    if target.goal in (Goal.SHIFT, Goal.CURRENT) and at.offset is None:
        return Reset(at, None, NO_OFFSET, is_left=target.goal is Goal.CURRENT and at.committed is None)
    if target.goal in (Goal.SHIFT, Goal.CURRENT) and at.is_of_another_log:
        return Reset(at, None, OF_ANOTHER_LOG)
    wanted = {
        Goal.EARLIEST: at.watermarks.log_start,
        Goal.LATEST: at.watermarks.last_stable,
        Goal.CURRENT: at.offset,
        Goal.OFFSET: target.value,
        Goal.SHIFT: (at.offset or 0) + target.value,
        Goal.TIME: starts.get(at.partition),
    }[target.goal]
    if wanted is None:
        return Reset(at, at.watermarks.last_stable, "no record is that late, so it moves to the end")
    offset = min(max(wanted, at.watermarks.log_start), at.watermarks.high_watermark)
    side = "beginning" if wanted < offset else "end"
    return Reset(at, offset, "" if wanted == offset else f"{wanted} is out of range, so it moves to the {side}")


def refuse_local(settings: Config, clients: Clients) -> None:
    """Raise ConfigError if the store keeps no offsets outside the service."""
    if is_local(clients.offsets):
        raise ConfigError((f"offsets.store: {settings.offsets.store.name} has no offset to set: {RESTART}",))


def carry_out(planned: Sequence[Reset], clients: Clients, settings: Config, done: Callable[[], object]) -> None:
    """
    Store the new offsets; call `done` after each.

    Raises ServiceRuns if the service is running, or has committed since the offsets were read: nothing was changed.
    Raises PartlySet if some offsets may have been set, and others not.
    """
    service, partitions = StoppedService(settings, clients), [each.at.partition for each in planned]
    service.prepare(clients.offsets, partitions)
    # Not stable, as the plan was read: where nothing ends a pending offset, no partition could be set.
    _refuse_outdated(planned, clients.offsets.load(partitions, stable=False))
    with service.changing(clients.offsets, partial(_partly_set, partitions)) as written:
        for each in planned:
            partition, committed = each.at.partition, each.committed
            clients.offsets.reset(partition, committed.offset, committed.metadata)
            written[partition] = committed
            done()


def _refuse_outdated(planned: Sequence[Reset], now: Offsets) -> None:
    """Refuse a plan for other offsets than those of now: a service that has stopped since moved them."""
    for each in planned:
        if (found := now.get(each.at.partition)) != each.at.committed:
            was = each.at.committed or "nothing"
            cause = f"{each.at.partition} was committed since it was read: {was} then, {found or 'nothing'} now"
            raise ServiceRuns(f"{cause}; nothing was changed", "run it again")


def _partly_set(partitions: Sequence[Partition], count: int, why: str) -> PartlySet:
    """Return the error if only the first partitions are known to be set. A second shift would move them again."""
    cause = f"{count} of {len(partitions)} offsets were set, then {why}"
    rest = f", at most {options(partitions[count:])}" if count < len(partitions) else ""
    cure = f"see {SHOW_OFFSETS}; any goal can be repeated, but --shift-by only for what is not set{rest}"
    return PartlySet(cause, cure)


def chosen(wanted: Sequence[str], found: Iterable[PartitionLag]) -> list[PartitionLag]:
    """Return the partitions named as `TOPIC[:PARTITIONS]`, or all; raise ValueError if a named one does not exist."""
    known = {each.partition: each for each in found}
    named = {each for text in wanted for each in _named(text, known)} if wanted else known
    return [known[each] for each in sorted(named)]


def options(partitions: Iterable[Partition]) -> str:
    """Return the options that name these partitions."""
    numbers = numbers_by_topic(sorted(partitions)).items()
    return " ".join(f"--topic {topic}:{','.join(in_ranges(found))}" for topic, found in numbers)


def _named(text: str, partitions: Collection[Partition]) -> list[Partition]:
    topic, colon, numbers = text.partition(":")
    known = {each for each in partitions if each.topic == topic}
    if not known:
        topics = ", ".join(sorted({each.topic for each in partitions})) or "none"
        raise ValueError(f"{topic!r} is not a source topic; the source topics are: {topics}")
    if not colon:
        return sorted(known)
    named = []
    for each in (Partition(topic, number) for part in numbers.split(",") for number in _numbers(part)):
        if each not in known:  # at once: a slip may name billions
            raise ValueError(f"{each} does not exist: {topic} has {len(known)} partitions")
        named.append(each)
    return named


def _numbers(part: str) -> Sequence[int]:
    match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
    numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
    if not numbers:
        raise ValueError(f"{part!r} is not a partition or a range: write partitions as 0,3-5")
    return numbers
