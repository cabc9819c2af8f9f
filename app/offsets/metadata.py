"""
The metadata that tasks commit beside each offset: whose it is, and what became of the records before it.

    winnow/2 topic=5L6g3nShT since=100 in=4203 out=4187 dead=e:3,nm:12,~mine:1 ib=1428020 ob=380011 tx=81:2
    backlog=9000 read=4303@2 by=winnow-driver@1795328875831 sink=clean-logs gen=2
    task=12.3.0;41200;310;5321:0,3,9;1210:8,4;880:0,0,0,40 blocked=500%20of%20900%20records…

The counts are committed together with the records that they count, so they are exact, whatever process dies. A task
continues the counts that it finds, so they go on over rounds, crashes and upgrades; `since` says from which offset.
A task that leaves a partition to a person says why, until the offset moves; `continuing` never takes that over. One
partition of each task also has what the task spends its time on (`app.offsets.times`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import quote, unquote

from app.model import NOBODY, CommittedOffset, LastRead, OffsetRange, Owner
from app.offsets.times import TaskReport

FIRST_VERSION, VERSION = "winnow", "winnow/2"
MAX_BYTES = 4000
"""A little less than the broker's default for `offset.metadata.max.bytes`, 4,096."""
MAX_REASON = 1_500
"""What is written of the reason why a partition is blocked, which may hold a broker's words."""
_READABLE = "/:;,.()'@"
UNKNOWN = "unknown"
"""The reason of dead letters that the first version counted without one."""
OTHER = "other"
"""The reason that stands for the rare ones where the metadata would grow too long."""

# Twelve bytes for each of the usual reasons leave room for everything else. Any other reason follows a `~`.
CODES: Mapping[str, str] = MappingProxyType(
    {
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
)
_REASONS = {code: reason for reason, code in CODES.items()}


@dataclass(frozen=True, slots=True)
class Counts:
    """Records and bytes of one partition: what came in, where it went, and in how many transactions."""

    records: int = 0
    out: int = 0
    dead: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int = 0
    bytes_out: int = 0
    committed: int = 0
    aborted: int = 0

    def __add__(self, other: Counts) -> Counts:
        dead = {reason: self.dead.get(reason, 0) + other.dead.get(reason, 0) for reason in {**self.dead, **other.dead}}
        return Counts(
            self.records + other.records,
            self.out + other.out,
            dead,
            self.bytes_in + other.bytes_in,
            self.bytes_out + other.bytes_out,
            self.committed + other.committed,
            self.aborted + other.aborted,
        )

    def since(self, earlier: Counts) -> Counts:
        """Return what was counted after `earlier`; a count that went back counts as nothing."""
        dead = {
            reason: more for reason, count in self.dead.items() if (more := count - earlier.dead.get(reason, 0)) > 0
        }
        return Counts(
            max(0, self.records - earlier.records),
            max(0, self.out - earlier.out),
            dead,
            max(0, self.bytes_in - earlier.bytes_in),
            max(0, self.bytes_out - earlier.bytes_out),
            max(0, self.committed - earlier.committed),
            max(0, self.aborted - earlier.aborted),
        )

    @property
    def dead_total(self) -> int:
        """How many records went to the dead letters."""
        return sum(self.dead.values())


NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """
    What stands beside a committed offset.

    Args:
        topic_id: the id of the topic, which no later topic of the same name has; empty where the broker gives none.
        since: the offset from which the counts count.
        counts: what became of the records from there to the committed offset.
        read: the last record that was read; None where no leader epoch is known.
        owner: the run of the service that committed it.
        report: what the task that committed it spends its time on; None beside most offsets.
        backlog: where committed records ended when the counts began; 0 where that is not known.
        blocked: why the task that committed it left the partition to a person; empty where it did not.
    """

    topic_id: str = ""
    since: int = 0
    counts: Counts = NOTHING
    read: LastRead | None = None
    owner: Owner = NOBODY
    report: TaskReport | None = None
    backlog: int = 0
    blocked: str = ""

    def __str__(self) -> str:
        counts = self.counts
        before = f"{VERSION} topic={self.topic_id} since={self.since} in={counts.records} out={counts.out}"
        after = f" ib={counts.bytes_in} ob={counts.bytes_out}"
        after += f" tx={counts.committed}:{counts.aborted}" if counts.committed or counts.aborted else ""
        after += f" backlog={self.backlog}" if self.backlog else ""
        after += f" read={self.read.after}@{self.read.epoch}" if self.read else ""
        after += _written(self.owner) if self.owner != NOBODY else ""
        after += f" task={self.report}" if self.report else ""
        after += f" blocked={quote(self.blocked, safe=_READABLE)[:MAX_REASON]}" if self.blocked else ""
        return f"{before} dead={_reasons(counts.dead, MAX_BYTES - len(before) - len(after))}{after}"

    @classmethod
    def parse(cls, text: str) -> OffsetMetadata:
        """Return what `text` says, in this version or the first; text that somebody else wrote says nothing."""
        version, *words = text.split() or [""]
        if version not in (FIRST_VERSION, VERSION):
            return cls()
        values = dict(word.partition("=")[::2] for word in words)
        dead = _counted(values.get("dead", ""))
        records = _number(values.get("in", ""))
        out = _number(values["out"]) if "out" in values else max(0, records - sum(dead.values()))
        sizes = _number(values.get("ib", "")), _number(values.get("ob", ""))
        counts = Counts(records, out, dead, *sizes, *map(_number, values.get("tx", "0:0").split(":")[:2]))
        read = _last_read(values.get("read", ""))
        owner = _owner(values.get("by", ""), values.get("sink", ""), values.get("gen", ""))
        report = TaskReport.parse(values.get("task", ""))
        since, backlog = _number(values.get("since", "")), _number(values.get("backlog", ""))
        blocked = unquote(values.get("blocked", ""))
        return cls(values.get("topic", ""), since, counts, read, owner, report, backlog, blocked)

    @classmethod
    def continuing(
        cls, committed: CommittedOffset | None, position: int, planned: OffsetRange, owner: Owner
    ) -> OffsetMetadata:
        """Go on with the counts beside the committed offset; those of another topic, or of nobody, begin here."""
        topic_id = planned.topic_id
        found = cls.parse(committed.metadata if committed else "")
        if found.is_ours and found.topic_id in ("", topic_id):
            stays = committed is not None and position == committed.offset
            # Where nothing is counted yet, a person has set the offset, or the first commit is still to come.
            backlog = planned.backlog if found.counts == NOTHING else found.backlog
            read = found.read if stays else None
            return cls(topic_id, found.since, found.counts, read, owner, backlog=backlog)
        return cls(topic_id, position, owner=owner, backlog=planned.backlog)

    @classmethod
    def restarting(cls, committed: CommittedOffset | None, position: int, topic_id: str) -> str:
        """
        Return what stands beside an offset that a person sets: the counts begin there, and it names no run.

        Where a task has committed in this topic, the topic's id stays: the group has worked on it, and a topic that is
        created again must be noticed. Otherwise nothing stands there: an operator's offset shows nothing.
        """
        found = cls.parse(committed.metadata if committed else "")
        worked_on = found.is_ours and found.topic_id == topic_id
        return str(cls(topic_id, position)) if worked_on else ""

    @property
    def is_ours(self) -> bool:
        """Whether a task of Winnow wrote it."""
        return self != OffsetMetadata()


def owner_of(committed: CommittedOffset | None) -> Owner:
    """Return the run whose task committed an offset; NOBODY where its metadata does not say."""
    return OffsetMetadata.parse(committed.metadata).owner if committed else NOBODY


def _last_read(text: str) -> LastRead | None:
    after, _, epoch = text.partition("@")
    return LastRead(_number(after), _number(epoch)) if epoch else None


def _written(owner: Owner) -> str:
    of = f" gen={owner.generation}" if owner.generation else ""
    return f" by={quote(owner.host, safe='')}@{owner.started} sink={quote(owner.sink, safe='')}{of}"


def _owner(by: str, sink: str, generation: str) -> Owner:
    host, _, started = by.rpartition("@")
    return Owner(_number(started), unquote(host), unquote(sink), _number(generation))


def _reasons(dead: Mapping[str, int], room: int) -> str:
    """Write the counts by reason, the most frequent first; what has no room becomes `other`."""
    frequent = sorted((item for item in dead.items() if item[1]), key=lambda item: -item[1])
    written = [f"{_code(reason)}:{count}" for reason, count in frequent]
    rest = 0
    while len(",".join(written)) + 30 > room and written:
        rest += int(written.pop().rpartition(":")[2])
    return ",".join([*written, *([f"~{OTHER}:{rest}"] if rest else [])])


def _code(reason: str) -> str:
    return CODES.get(reason) or f"~{quote(reason, safe='')}"


def _counted(text: str) -> dict[str, int]:
    """Read the counts by reason; the first version has only their sum."""
    if text.isdecimal():
        return {UNKNOWN: int(text)} if int(text) else {}
    counts: dict[str, int] = {}
    for part in text.split(","):
        code, _, count = part.rpartition(":")
        reason = unquote(code[1:]) if code.startswith("~") else _REASONS.get(code, "")
        if reason and (number := _number(count)):
            counts[reason] = counts.get(reason, 0) + number
    return counts


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
