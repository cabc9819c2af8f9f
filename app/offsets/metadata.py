"""
The metadata that tasks commit with each offset: who committed it, and the counts of the records before it.

    winnow/2 topic=5L6g3nShT since=100 in=4203 out=4187 dead=e:3,nm:12,~mine:1 ib=1428020 ob=380011 tx=81:2
    filtered=~health:70 backlog=9000 read=4303@2 by=winnow-driver@1795328875831 sink=clean-logs gen=2
    task=12.3.0;41200;310;5321:0,3,9;1210:8,4;880:0,0,0,40 tripped=1 blocked=500%20of%20900%20records…

Counts are committed together with the records that they count, so they stay exact whatever process dies. A task
continues the counts that it finds, over rounds, crashes and upgrades; `since` is the offset they start at. A task that
leaves a partition to an operator says why in `blocked`, until the offset moves; `continuing` drops it. One partition
of each task also has the task's times (`app.offsets.times`).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from urllib.parse import quote, unquote

from app.model import NOBODY, CommittedOffset, LastRead, OffsetRange, Owner, topic_id_of, topics_differ
from app.offsets.times import TaskReport

FIRST_VERSION, VERSION = "winnow", "winnow/2"
MAX_BYTES = 4000
"""A little less than the broker's default for `offset.metadata.max.bytes`, 4,096."""
MAX_FILTERED = 1_000
"""The most characters written of the counts by filter."""
MAX_REASON = 1_500
"""The most characters written of why a partition is blocked, which may quote a broker."""
MAX_DIGITS = 20
"""The most digits of a number. Python refuses to convert thousands, which another tool may write."""
_READABLE = "/:;,.()'@"
UNKNOWN = "unknown"
"""The reason of dead letters that the first version counted without one."""
OTHER = "other"
"""Combines rare reasons when the metadata would become too long."""

# The usual reasons take at most twelve bytes each, which leaves room for the rest. Any other reason follows a `~`.
CODES: Mapping[str, str] = {
    "empty": "e",
    "no_marker": "nm",
    "field_count": "fc",
    "houseid": "h",
    "gathertime": "gt",
    "srcip": "si",
    "destip": "di",
    "srcport": "sp",
    "destport": "dp",
    "illegal_character": "ic",
    "too_large": "tl",
    "envelope": "en",
    "parser_error": "pe",
    "refused": "rf",
}
_REASONS = {code: reason for reason, code in CODES.items()}

ByName = Mapping[str, int]
Combine = Callable[[int, int], int]
Merge = Callable[[ByName, ByName], ByName]


@dataclass(frozen=True, slots=True)
class Counts:
    """Records and bytes of one partition: input, outcomes, and transactions."""

    records: int = 0
    out: int = 0
    dead: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0
    committed: int = 0
    aborted: int = 0
    filtered: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Counts) -> Counts:
        return self._combined(other, operator.add, _added)

    def since(self, earlier: Counts) -> Counts:
        """Return what was counted after `earlier`; a count that went back gives 0."""
        return self._combined(earlier, lambda now, then: max(0, now - then), _new)

    def is_before(self, later: Counts) -> bool:
        """Whether `later` counts more records, or more commits of the same ones."""
        return (self.records, self.committed) < (later.records, later.committed)

    def _combined(self, other: Counts, combine: Combine, merge: Merge) -> Counts:
        return Counts(
            combine(self.records, other.records),
            combine(self.out, other.out),
            merge(self.dead, other.dead),
            combine(self.bytes_in, other.bytes_in),
            combine(self.bytes_out, other.bytes_out),
            combine(self.committed, other.committed),
            combine(self.aborted, other.aborted),
            merge(self.filtered, other.filtered),
        )

    @property
    def dead_total(self) -> int:
        return sum(self.dead.values())

    @property
    def filtered_total(self) -> int:
        return sum(self.filtered.values())


def _added(left: ByName, right: ByName) -> ByName:
    """Add two counts by name; what `right` counts comes first."""
    counts = {name: left.get(name, 0) + right.get(name, 0) for name in {**right, **left}}
    return {name: count for name, count in counts.items() if count}


def _new(now: ByName, then: ByName) -> ByName:
    """
    Return what was counted since then.

    A name without room counts in `other`. So what a name has lost is not new there, nor is what it has regained.
    """
    new = {name: now.get(name, 0) - then.get(name, 0) for name in {**now, **then}}
    if OTHER in new:
        new[OTHER] += sum(count for name, count in new.items() if count < 0 and name != OTHER)
        for name in [each for each in now if each not in then]:
            regained = min(new[name], max(0, -new[OTHER]))
            new[name], new[OTHER] = new[name] - regained, new[OTHER] + regained
    return {name: count for name, count in new.items() if count > 0}


NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """
    The metadata of a committed offset.

    Args:
        topic_id: empty if the broker gives none.
        since: the offset at which the counts start.
        counts: the outcomes of the records from there to the committed offset.
        read: the last record read; None if its leader epoch is unknown.
        owner: the run of the service that committed it; NOBODY if it does not say.
        report: the committing task's times; None for most offsets.
        backlog: the last stable offset when the counts started; 0 if unknown.
        blocked: why the committing task left the partition to an operator; empty if it did not.
        tripped: whether it did so because of too many dead letters.
        cut: where the log ended, if it did so because the log was truncated.
    """

    topic_id: str = ""
    since: int = 0
    counts: Counts = NOTHING
    read: LastRead | None = None
    owner: Owner = NOBODY
    report: TaskReport | None = None
    backlog: int = 0
    blocked: str = ""
    tripped: bool = False
    cut: int | None = None

    def __str__(self) -> str:
        counts = self.counts
        before = f"{VERSION} topic={self.topic_id} since={self.since} in={counts.records} out={counts.out}"
        after = f" ib={counts.bytes_in} ob={counts.bytes_out}"
        after += f" tx={counts.committed}:{counts.aborted}" if counts.committed or counts.aborted else ""
        # Those that counted last come first, so a filter that was removed is the first without room.
        after += f" filtered={_written_counts(counts.filtered, MAX_FILTERED)}" if counts.filtered else ""
        after += f" backlog={self.backlog}" if self.backlog else ""
        after += f" read={self.read.after}@{self.read.epoch}" if self.read else ""
        after += _written_owner(self.owner) if self.owner != NOBODY else ""
        after += f" task={self.report}" if self.report else ""
        after += " tripped=1" if self.tripped else ""
        after += "" if self.cut is None else f" cut={self.cut}"
        after += f" blocked={quote(self.blocked, safe=_READABLE)[:MAX_REASON]}" if self.blocked else ""
        room = MAX_BYTES - len(before) - len(after)
        return f"{before} dead={_written_counts(dict(Counter(counts.dead).most_common()), room)}{after}"

    @classmethod
    @lru_cache(maxsize=2_048)
    def parse(cls, text: str) -> OffsetMetadata:
        """
        Parse this version or the first; text from any other tool gives empty metadata.

        The last results are kept: each look at the offsets asks for most of them several times.
        """
        version, *words = text.split() or [""]
        if version not in (FIRST_VERSION, VERSION):
            return cls()
        values = dict(word.partition("=")[::2] for word in words)
        dead, filtered = _counted(values.get("dead", "")), _counted(values.get("filtered", ""))
        records = _number(values.get("in", ""))
        out = _number(values["out"]) if "out" in values else max(0, records - sum(dead.values()))
        sizes = _number(values.get("ib", "")), _number(values.get("ob", ""))
        committed, _, aborted = values.get("tx", "").partition(":")
        counts = Counts(records, out, dead, *sizes, _number(committed), _number(aborted.partition(":")[0]), filtered)
        read = _last_read(values.get("read", ""))
        owner = _owner(values.get("by", ""), values.get("sink", ""), values.get("gen", ""))
        report = TaskReport.parse(values.get("task", ""))
        since, backlog = _number(values.get("since", "")), _number(values.get("backlog", ""))
        blocked, tripped = unquote(values.get("blocked", "")), "tripped" in values
        cut = _number(values["cut"]) if "cut" in values else None
        topic_id = topic_id_of(values.get("topic", ""))  # up to 0.2.0, zeros were written
        return cls(topic_id, since, counts, read, owner, report, backlog, blocked, tripped, cut)

    @classmethod
    def of(cls, committed: CommittedOffset | None) -> OffsetMetadata:
        return cls.parse(committed.metadata if committed else "")

    @classmethod
    def continuing(
        cls, committed: CommittedOffset | None, position: int, planned: OffsetRange, owner: Owner
    ) -> OffsetMetadata:
        """Continue the counts of the committed offset, or start new ones if it has none or is another topic's."""
        topic_id, found = planned.topic_id, cls.of(committed)
        if found.is_ours and not topics_differ(found.topic_id, topic_id):
            # Without counts, an operator set the offset, or there was no commit yet.
            backlog = planned.backlog if found.counts == NOTHING else found.backlog
            read = _last_read_before(position, found.read, committed, planned)
            return cls(topic_id, found.since, found.counts, read, owner, backlog=backlog)
        return cls(topic_id, position, owner=owner, backlog=planned.backlog)

    @classmethod
    def restarting(cls, committed: CommittedOffset | None, position: int, topic_id: str) -> str:
        """
        Return the metadata of an offset that an operator sets: counts start there, and it names no run.

        If a task has committed in this topic, the topic's id is kept: the group has worked on it, and must notice if it
        is created again. Otherwise the metadata is empty.
        """
        found = cls.of(committed)
        worked_on = found.is_ours and not topics_differ(found.topic_id, topic_id)
        return str(cls(topic_id, position)) if worked_on else ""

    @classmethod
    def beginning_anew(cls, committed: CommittedOffset) -> str:
        """
        Return the metadata of an offset that moves to another cluster with the sink: counts start there, without a run.

        What shows that the source was truncated is kept, because its log is the same.
        """
        found = cls.of(committed)
        anew = replace(found, since=committed.offset, counts=NOTHING, owner=NOBODY, report=None, backlog=0)
        return str(anew) if found.is_ours else committed.metadata

    def continues(self, other: OffsetMetadata) -> bool:
        """Whether both count from the same offset of the same topic."""
        return self.since == other.since and not topics_differ(self.topic_id, other.topic_id)

    @property
    def is_ours(self) -> bool:
        """Whether Winnow wrote it."""
        return self != OffsetMetadata()


def _last_read_before(
    position: int, last: LastRead | None, committed: CommittedOffset | None, planned: OffsetRange
) -> LastRead | None:
    """
    Return the last record read before a position, if it is still there.

    What a cut has left is of the leader epoch of the last record read, or an earlier one: enough to notice another cut.
    """
    if position == planned.start and planned.cut is not None:
        return None if last is None or position > planned.cut else LastRead(position, last.epoch)
    if committed is None or last is None or not last.after <= position == committed.offset:
        return None  # metadata of a larger offset would keep the lane from taking the records before that
    return last


def _last_read(text: str) -> LastRead | None:
    after, _, epoch = text.partition("@")
    return LastRead(_number(after), _number(epoch)) if epoch else None


def _written_owner(owner: Owner) -> str:
    of = f" gen={owner.generation}" if owner.generation else ""
    return f" by={quote(owner.host, safe='')}@{owner.started} sink={quote(owner.sink, safe='')}{of}"


def _owner(by: str, sink: str, generation: str) -> Owner:
    host, _, started = by.rpartition("@")
    return Owner(_number(started), unquote(host), unquote(sink), _number(generation))


def _written_counts(counts: Mapping[str, int], room: int) -> str:
    """Write the counts by reason or filter, in their order; those without room become `other`."""
    written = [f"{CODES.get(name) or '~' + quote(name, safe='')}:{count}" for name, count in counts.items() if count]
    size, rest = sum(len(each) + 1 for each in written), 0
    while size + 29 > room and written:
        last = written.pop()
        size -= len(last) + 1
        rest += int(last.rpartition(":")[2])
    return ",".join([*written, *([f"~{OTHER}:{rest}"] if rest else [])])


def _counted(text: str) -> dict[str, int]:
    """Read the counts by reason; the first version has only their total."""
    if total := _number(text):
        return {UNKNOWN: total}
    counts: dict[str, int] = {}
    for part in text.split(","):
        code, _, count = part.rpartition(":")
        reason = unquote(code[1:]) if code.startswith("~") else _REASONS.get(code, "")
        if reason and (number := _number(count)):
            counts[reason] = counts.get(reason, 0) + number
    return counts


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else 0
