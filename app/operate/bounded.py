"""The ranges and positions of `winnow replay`, which leaves the service's group alone."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from typing import Any

from app.driver.starting_offsets import is_of_another
from app.errors import ConfigError
from app.model import CommittedOffset, OffsetRange, Outcome, Partition, Receipt
from app.operate.lag import PartitionLag

DEAD_LETTERS = "{}.dlq"
"""The default topic for rejected records."""
GO_ON = (
    "fix that and run the same replay again, which resumes there; or choose another range. The service is unaffected"
)


def group_of(group: str, into: str, begin: int, end: int) -> str:
    """Return the group that holds a replay's positions: one for each range and target."""
    return f"{group}.replay.{into}.{begin}-{end}"


def refuse_own_topics(targets: Mapping[str, str], *own: Container[str]) -> None:
    """
    Check that a replay writes to none of the service's topics.

    Args:
        targets: the topics that it writes to, by option.
        own: the service's topics.

    Raises:
        ConfigError: it does, or two options name the same topic.
    """
    problems = [
        f"{option}: {topic!r} is one of the service's topics, which must not receive replayed lines"
        for option, topic in targets.items()
        if any(topic in each for each in own)
    ]
    if len(set(targets.values())) < len(targets):
        problems.append(f"{' and '.join(targets)} must differ: readers could not tell them apart")
    if problems:
        raise ConfigError(tuple(problems))


@dataclass(frozen=True, slots=True)
class Part:
    """
    The part of one source partition to replay.

    Args:
        begin: the first offset.
        end: the offset to stop before.
        committed: the position of earlier attempts; None before the first.
        log_start: the partition's first offset.
    """

    partition: Partition
    begin: int
    end: int
    committed: CommittedOffset | None
    topic_id: str
    log_start: int

    @property
    def start(self) -> int:
        """Where to resume; a position in a deleted topic of that name does not count."""
        if self.committed is None or is_of_another(self.committed, self.topic_id):
            return self.begin
        return self.committed.offset

    @property
    def range(self) -> OffsetRange:
        """The range for a task."""
        committed = None if self.committed is None else self.committed.offset
        return OffsetRange(self.partition, committed, self.start, self.end, self.topic_id, self.log_start)


def parts(
    found: Collection[PartitionLag],
    positions: Mapping[Partition, CommittedOffset],
    begins: Mapping[Partition, int | None],
    ends: Mapping[Partition, int | None],
) -> list[Part]:
    """
    Return the non-empty parts of the source partitions between two times.

    Args:
        positions: the positions of earlier attempts at the same range.
        begins: the first offset at or after the first time; None if no record is that late.
        ends: the same for the end time.
    """
    chosen = []
    for at in found:
        begin, end = begins[at.partition], ends[at.partition]
        if at.watermarks is None or begin is None:
            continue
        end = at.watermarks.last_stable if end is None else end
        if begin < end:
            done = positions.get(at.partition)
            chosen.append(Part(at.partition, begin, end, done, at.topic_id, at.watermarks.log_start))
    return chosen


def as_json(part: Part, receipt: Receipt | None) -> dict[str, Any]:
    """Return a part's result for `--json`; a part without a receipt was not worked on."""
    return {
        **part.partition.as_json(),
        "begin": part.begin,
        "end": part.end,
        "position": part.start if receipt is None else receipt.end,
        "in": receipt.records if receipt else 0,
        "out": receipt.out if receipt else 0,
        "dead_letters": dict(receipt.dead) if receipt else {},
        "problem": problem_of(receipt) or None,
    }


def problem_of(receipt: Receipt | None) -> str:
    """Return why a part was not finished; empty if it was, or was not worked on."""
    if receipt is None or receipt.outcome is Outcome.DONE:
        return ""
    if receipt.outcome is Outcome.FENCED:
        return "another replay of the same range has taken over"
    if receipt.outcome is Outcome.BLOCKED:  # the receipt's cure would change the service's offsets
        return f"{receipt.error}: {GO_ON}"
    return receipt.error or receipt.outcome.value
