"""
The symptoms that `winnow doctor` finds, each decided in one place. Pure: facts in, symptoms out.

No symptom repeats the content of a record: a report may go to strangers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from app import cures
from app.cures import KafkaTools
from app.driver.diagnostics import Severity
from app.errors import Leaderless, PartitionError, WinnowError
from app.facts import OpenTransaction
from app.model import Guarantee, Partition, Watermarks
from app.operate.findings import Defect, Finding
from app.operate.lag import PartitionLag
from app.operate.reading import Offsets
from app.status.condition import Condition
from app.times import time_of

GROUP, SERVICE = "the group", "the service"
UPSTREAM_SECONDS = 300.0
"""How long a transaction of the source's producers may stay open, as in the alert WinnowUpstreamTransactionOpen."""


class Symptom(NamedTuple):
    """Something wrong in a partition, topic, store or part of the examination; it mends itself if `cure` is empty."""

    severity: Severity
    what: str
    where: str
    cure: str

    @classmethod
    def of(cls, severity: Severity, error: WinnowError, where: str = "") -> Self:
        """Return what an error says; a problem of a partition names its own place."""
        if isinstance(error, PartitionError):
            where = error.partition.at(error.offset)
        return cls(severity, error.cause, where, error.cure)


def of_partitions(found: Iterable[PartitionLag], kafka: KafkaTools) -> Iterator[Symptom]:
    """Yield why partitions do not flow, or have lost records."""
    for at in found:
        if at.watermarks is None:
            yield Symptom.of(Severity.WRONG, Leaderless(at.partition))
        elif at.trouble is not None:
            yield Symptom.of(Severity.WRONG, at.trouble)
        elif at.problem and at.offset is not None:
            # out.of.range says where a service goes on: it is not `error`, which would be its trouble.
            is_lost = at.offset < at.watermarks.log_start
            cure = f"{cures.LOOK_AGAIN}; {_keep_longer(at, None, kafka)}" if is_lost else cures.LOOK_AGAIN
            yield Symptom(Severity.WRONG, at.problem, at.partition.at(at.offset), cure)


def of_retention(
    found: Iterable[PartitionLag], retention: Mapping[str, float | None], kafka: KafkaTools
) -> Iterator[Symptom]:
    """
    Yield which records the source is about to delete unread: those in the second half of their time.

    `retention` has the seconds by topic; None if unlimited or unknown.
    """
    for at in found:
        keeps, age = retention.get(at.partition.topic), at.seconds
        if at.lag and age and keeps is not None and (margin := keeps - age) < age:
            left = f"in {margin:.0f} s at the latest" if margin > 0 else "at any moment"
            what = f"its first unread record is {age:.0f} s old and will be deleted {left}"
            cure = _keep_longer(at, keeps, kafka)
            yield Symptom(Severity.WRONG, what, at.partition.at(at.next_offset), cure)


def _keep_longer(at: PartitionLag, seconds: float | None, kafka: KafkaTools) -> str:
    longer = "MILLISECONDS" if seconds is None else round(2_000 * seconds)
    return f"keep records for longer: {kafka.configure(at.partition.topic, f'retention.ms={longer}')}"


def of_flow(
    before: Collection[PartitionLag], now: Collection[PartitionLag], seconds: float, service: str = ""
) -> Iterator[Symptom]:
    """
    Yield what does not flow, by two looks this many seconds apart; `service` is what is known of one that has answered.

    An idle service commits one offset of each task every second. A partition with a problem has its own symptom.
    """
    earlier = {each.partition: each for each in before}
    waiting = [each for each in now if each.lag and not each.problem]
    if all(each.committed == earlier.get(each.partition, each).committed for each in now):
        what = f"{service or 'no service works'}: no offset was committed within {seconds:.0f} s"
        cure = cures.LOOK_AGAIN if service else cures.START
        if waiting:
            lag = sum(each.lag or 0 for each in waiting)
            yield Symptom(Severity.WRONG, f"{what}, and {lag} wait in {len(waiting)} partitions", GROUP, cure)
        elif not any(each.problem for each in now):
            yield Symptom(Severity.WARNS, what, GROUP, cure)
        return
    for each in waiting:
        was = earlier.get(each.partition)
        if was is not None and was.lag and was.offset == each.offset:
            what = f"records wait, but its offset has not moved for {seconds:.0f} s"
            yield Symptom(Severity.WARNS, what, each.partition.at(each.offset), cures.LOOK_AGAIN)


def of_readers(
    before: Mapping[Partition, Watermarks],
    now: Mapping[Partition, Watermarks],
    seconds: float,
    kafka: KafkaTools,
    *,
    perhaps_ours: bool,
) -> Iterator[Symptom]:
    """
    Yield the partitions of the sink and the dead letters whose read_committed readers get nothing.

    A transaction may be `perhaps_ours` if the group may have an open one, which a busy service ends within seconds.
    """
    severity = Severity.WARNS if perhaps_ours else Severity.WRONG
    for each, was in sorted(before.items()):
        if each in now and was.high_watermark > was.last_stable == now[each].last_stable:
            what = f"its readers wait: a transaction has been open here for {seconds:.0f} s or more"
            replays = "a replay's, which it does not list, ends after transaction.timeout, or when the replay goes on"
            cure = f"see {cures.TRANSACTIONS}; {replays}; if it stays, {kafka.find_hanging(f'--topic {each.topic}')}"
            yield Symptom(severity, what, each.at(was.last_stable), cure)


def of_transactions(found: Iterable[OpenTransaction], timeout: float, now: float) -> Iterator[Symptom]:
    """Yield the transactions that brokers should have aborted; times are in seconds since the epoch."""
    for each in found:
        age = now - each.began / 1000
        if age > timeout:
            what = f"its transaction has been {each.state} for {age:.0f} s, longer than transaction.timeout"
            yield Symptom(Severity.WRONG, what, str(each.source), cures.ABORT_TRANSACTIONS)


def of_mirror(store: str, mirror: str, found: Offsets, before: Offsets, after: Offsets) -> Iterator[Symptom]:
    """
    Yield the partitions whose offset in a mirror is not the store's, at whatever moment it was read.

    `store` and `mirror` are the names that `winnow offsets migrate` takes; the store was read before and after.
    """
    soon = "within one round.interval, or within three with at-least-once"
    cure = f"a running service corrects it {soon}; if none runs, {cures.migrate_offsets(store, mirror)} --force"
    for each, right in sorted(before.items()):
        if right.corrupt:
            continue
        mirrored, latest = found.get(each), after.get(each, right)
        if mirrored is None or mirrored.corrupt:
            what = "has no offset" if mirrored is None else "holds something other than an offset"
        elif not right.offset <= mirrored.offset <= max(right.offset, latest.offset):
            what = f"has offset {mirrored.offset}, but {store} has {latest.offset}"
        else:
            continue
        yield Symptom(Severity.WARNS, f"mirror {mirror} {what}", str(each), cure)


DEFECTS = {
    Defect.LOST: "the sink has no line of this record, nor a dead letter",
    Defect.DOUBLED: "the sink has the line of this record more than once",
    Defect.CHANGED: "what was written of this record is not what the parser gives now",
    Defect.OUT_OF_ORDER: "the line of this record is out of order",
    Defect.BOTH: "this record has a line and a dead letter",
    Defect.UNEXPLAINED: "no source record explains what is here",
}
ONLY_ONCE = (Defect.DOUBLED, Defect.OUT_OF_ORDER, Defect.BOTH)
"""What a crash may leave with at-least-once."""


def of_audit(found: Iterable[Finding], guarantee: Guarantee, since: int) -> Iterator[Symptom]:
    """Yield the findings of an audit without the lines that they quote; `since` is in milliseconds since the epoch."""
    cure = cures.audit(time_of(since))
    for each in found:
        tolerated = guarantee is Guarantee.AT_LEAST_ONCE and each.kind in ONLY_ONCE
        where = each.found_at if each.origin is None else each.origin.partition.at(each.origin.offset)
        yield Symptom(Severity.WARNS if tolerated else Severity.WRONG, DEFECTS[each.kind], where, cure)


CONDITIONS: Mapping[str, tuple[Severity, str, str]] = {
    Condition.STALLED: (Severity.WRONG, "stalled: records wait, but its offset does not move", cures.LOOK_AGAIN),
    Condition.FALLING_BEHIND: (Severity.WARNS, "falling behind: its lag grows", cures.ADD_CAPACITY),
}


def of_status(document: Mapping[str, Any], kafka: KafkaTools) -> Iterator[Symptom]:
    """Yield what a running service says of itself; an older one may lack a key of the document."""
    for name, severity in (("not_alive", Severity.WRONG), ("not_ready", Severity.WARNS)):
        if reason := document.get(name):
            yield Symptom(severity, f"the service is {name.replace('_', ' ')}: {reason}", SERVICE, "")
    for each in document.get("problems", ()):
        where = SERVICE if each["topic"] is None else _partition(each).at(each["offset"])
        severity = Severity.WARNS if each.get("warns") else Severity.WRONG
        yield Symptom(severity, each["cause"], where, each["cure"])
    looked = document["now"] - (document.get("age") or 0.0)
    for each in document.get("partitions", ()):
        if condition := CONDITIONS.get(each.get("condition")):
            severity, what, cure = condition
            yield Symptom(severity, what, str(_partition(each)), cure)
        yield from _of_upstream(each, looked, kafka)


def _partition(status: Mapping[str, Any]) -> Partition:
    return Partition(status["topic"], status["partition"])


def _of_upstream(status: Mapping[str, Any], looked: float, kafka: KafkaTools) -> Iterator[Symptom]:
    since = status.get("open_transaction_since")
    if since is not None and looked - since > UPSTREAM_SECONDS:
        partition = _partition(status)
        what = f"records wait behind a transaction that a producer of the source opened {looked - since:.0f} s ago"
        where = f"--topic {partition.topic} --partition {partition.number}"
        cure = f"if its producer is gone: {kafka.find_hanging(where)}, then {kafka.abort(where, status['last_stable'])}"
        yield Symptom(Severity.WARNS, what, partition.at(status["last_stable"]), cure)


class Gathered(NamedTuple):
    """A symptom with all its places."""

    severity: Severity
    what: str
    where: Sequence[str]
    cure: str


def gathered(found: Iterable[Symptom]) -> list[Gathered]:
    """Return each symptom once, the worst first, otherwise in the order in which they were found."""
    places: dict[tuple[Severity, str, str], dict[str, None]] = {}
    for each in found:
        places.setdefault((each.severity, each.what, each.cure), {})[each.where] = None
    order = list(Severity)
    worst_first = sorted(places.items(), key=lambda item: order.index(item[0][0]))
    return [Gathered(severity, what, list(where), cure) for (severity, what, cure), where in worst_first]
