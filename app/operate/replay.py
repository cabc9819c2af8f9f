"""Cleanses a time range of the source again for `winnow replay`, which leaves the service's group alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from concurrent.futures import wait
from dataclasses import replace
from typing import Any, NamedTuple

from app.config import Config
from app.driver.clients import Clients
from app.driver.starting_offsets import is_of_another
from app.driver.task_config import task_config
from app.errors import ConfigError, NotUsable, Unreachable
from app.model import NOBODY, Assignment, Guarantee, OffsetRange, Outcome, Partition, Plugin, Receipt
from app.offsets.contract import StoreContext
from app.offsets.registry import open_store
from app.operate.lag import PartitionLag, offsets_of
from app.operate.reading import FirstOffsets, Offsets, span_between, whole
from app.runtime import REAL
from app.topics import OwnTopics

DEAD_LETTERS = "{}.dlq"
"""The default topic for rejected records."""
AS_LONG_AS_IT_TAKES = 30 * 86_400.0
LOOK_SECONDS = 1.0
GO_ON = (
    "fix that and run the same replay again, which resumes there; or choose another range. The service is unaffected"
)
ONCE_ENDED = "run the same replay again when its producer has ended it"


def group_of(group: str, into: str, begin: int, end: int) -> str:
    return f"{group}.replay.{into}.{begin}-{end}"


def refuse_own_topics(targets: Mapping[str, str], *own: Container[str]) -> None:
    """Raise ConfigError if one of the targets, by option, is a topic of the service, or two are the same."""
    problems = [
        f"{option}: {topic!r} is one of the service's topics, which must not receive replayed lines"
        for option, topic in targets.items()
        if any(topic in each for each in own)
    ]
    if len(set(targets.values())) < len(targets):
        problems.append(f"{' and '.join(targets)} must differ: readers could not tell them apart")
    if problems:
        raise ConfigError(tuple(problems))


class Part(NamedTuple):
    """The part of one source partition to replay; `left` is what earlier attempts have left of it."""

    begin: int
    end: int
    left: OffsetRange
    expired: bool = False
    """Whether retention may have deleted records of the range."""
    hidden: int = 0
    """How many offsets behind an open transaction of the source may belong to the range."""


def parts(
    found: Collection[PartitionLag], positions: Offsets, begins: FirstOffsets, ends: FirstOffsets, firsts: FirstOffsets
) -> list[Part]:
    """Return the parts of the partitions between two times, if they had a record then; `firsts` is of all times."""
    chosen = []
    for at in found:
        if (marks := at.watermarks) is None:
            continue
        begin, end = span_between(marks, begins[at.partition], ends[at.partition])
        first = marks.last_stable if (known := firsts[at.partition]) is None else known
        expired = marks.log_start > 0 and begin <= first
        hidden = marks.high_watermark - marks.last_stable if ends[at.partition] is None else 0
        if begin < end or expired or hidden:
            start, end, done = begin, max(begin, end), positions.get(at.partition)
            if done is not None and not is_of_another(done, at.topic_id):  # not of a deleted topic of that name
                start = max(done.offset, marks.log_start)  # retention may have passed it
            committed = None if done is None else done.offset
            left = OffsetRange(at.partition, committed, start, end, at.topic_id, marks.log_start)
            chosen.append(Part(begin, end, left, expired, hidden))
    return chosen


class Replay:
    """
    A replay between two times in milliseconds, exactly once, in a group and into topics of its own.

    Raises ConfigError if it would write to one of the service's topics, Unreachable if a partition does not answer.
    """

    def __init__(
        self, settings: Config, clients: Clients, times: tuple[int, int], into: str, rejects: str | None
    ) -> None:
        rejects = rejects or DEAD_LETTERS.format(into)
        found = offsets_of(settings, clients)
        own = {settings.sink.topic, settings.dead_letters.topic, *(each.partition.topic for each in found)}
        made = OwnTopics(settings.dead_letters.topic, settings.placeholder)
        refuse_own_topics({"--into": into, "--dead-letters": rejects}, own, made)
        self._clients = clients
        self.tasks = tasks = replace(
            task_config(settings, clients.destinations, NOBODY),
            group=group_of(settings.group_id, into, *times),
            sink=clients.destinations.destination(into),
            dead_letters=clients.destinations.destination(rejects),
            guarantee=Guarantee.EXACTLY_ONCE,
            offset_store=Plugin("kafka"),
            mirrors=(),
        )
        context = StoreContext(tasks.group, tasks.output_kafka, placeholder=tasks.placeholder)
        self._store = open_store(Plugin("kafka"), context)
        partitions = [each.partition for each in found]
        whole(partitions, {each.partition: each for each in found if each.watermarks is not None})
        begins, ends, firsts = (whole(partitions, clients.topics.offsets_at(partitions, each)) for each in (*times, 0))
        self.parts = parts(found, self._store.load(partitions, stable=False), begins, ends, firsts)
        self._left = [each.left for each in self.parts if each.left.start < each.end]

    @property
    def length(self) -> int:
        """How many offsets are left to read."""
        return sum(max(0, each.end - each.left.start) for each in self.parts)

    def carry_out(
        self, work: Callable[[Assignment], list[Receipt]], advance: Callable[[int], object]
    ) -> dict[Partition, Receipt]:
        """Let a task work until it reaches all ends; return its receipts. `advance` receives the offsets done."""
        if not self._left:
            return {}
        if self._clients.placeholders is not None:
            for refusal in self._clients.placeholders.make_room([each.partition for each in self._left]).values():
                raise refusal
        # A record that the service's tasks have survived must not end the command either.
        deadline = REAL.wall_clock() + AS_LONG_AS_IT_TAKES
        assignment = Assignment(self.tasks, tuple(self._left), AS_LONG_AS_IT_TAKES, deadline, isolate=True)
        working, done = REAL.background(lambda: work(assignment)), 0
        while not wait([working], LOOK_SECONDS).done:
            now = max(done, self._done())
            advance(now - done)
            done = now
        return {receipt.partition: receipt for receipt in working.result()}

    def _done(self) -> int:
        """Return how many offsets are done; 0 while Kafka does not answer."""
        try:
            positions = self._store.load([each.partition for each in self._left], stable=False)
        except (Unreachable, NotUsable):
            return 0
        return sum(positions[each.partition].offset - each.start for each in self._left if each.partition in positions)

    def close(self) -> None:
        self._store.close()


def as_json(part: Part, receipt: Receipt | None) -> dict[str, Any]:
    """Return a part's result for `--json`; a part without a receipt was not worked on."""
    return {
        **part.left.partition.as_json(),
        "begin": part.begin,
        "end": part.end,
        "position": part.left.start if receipt is None else receipt.end,
        "in": receipt.records if receipt else 0,
        "out": receipt.out if receipt else 0,
        "dead_letters": dict(receipt.dead) if receipt else {},
        "filtered": dict(receipt.filtered) if receipt else {},
        "expired": part.expired,
        "problem": problem_of(part, receipt) or None,
    }


def problem_of(part: Part, receipt: Receipt | None) -> str:
    if receipt is not None and receipt.outcome is Outcome.DONE and receipt.end < part.end:
        return "it ended early, perhaps because Kafka denied access: run the same replay again"
    if receipt is None or receipt.outcome is Outcome.DONE:
        return f"{part.hidden} offsets wait behind an open transaction: {ONCE_ENDED}" if part.hidden else ""
    if receipt.outcome is Outcome.FENCED:
        return "another replay of the same range has taken over"
    if receipt.outcome is Outcome.BLOCKED:  # the receipt's cure would change the service's offsets
        return f"{receipt.error}: {GO_ON}"
    return receipt.error or receipt.outcome.value
