"""The diagnostics of the preflight, each decided in one place. Pure: facts about Kafka in, diagnostics out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from shlex import quote
from typing import NamedTuple

from app.cures import KafkaTools
from app.errors import NotAllowed, NotUsable
from app.facts import BrokerFacts, TopicFacts
from app.model import UNLIMITED_MS, Guarantee, TimestampLimit

FEATURES = (
    ("OffsetFetch", 7, "stable offsets (KIP-447)", "2.5"),
    ("TxnOffsetCommit", 3, "transactions of a group (KIP-447)", "2.5"),
    ("InitProducerId", 3, "producers that recover from errors (KIP-360)", "2.5"),
)
"""What transactions need: an API request, its version, its purpose, and the first Kafka release that has it."""
RELEASES = (
    ("4.1", "Produce", 13),
    ("4.0", "Produce", 12),
    ("3.7", "Produce", 10),
    ("3.5", "Fetch", 15),
    ("3.1", "Fetch", 13),
    ("3.0", "ListOffsets", 7),
    ("2.8", "Metadata", 10),
    ("2.5", "OffsetFetch", 7),
)
"""Kafka releases, newest first, and an API request version that each introduced."""
CLOCK_SECONDS = 60.0
"""The tolerated clock difference, the same as in a task (`app.executor.limits`)."""


class Severity(StrEnum):
    """What a diagnostic means for the service, the worst first. A preflight finds only the first and the last."""

    REFUSES = "refuses"  # it would not run
    WRONG = "wrong"  # records are lost, wrong or not flowing
    UNKNOWN = "unknown"  # something could not be examined
    WARNS = "warns"  # it works


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One result of the preflight: whether the service refuses to run, and the error with its cure."""

    severity: Severity
    error: NotUsable

    @classmethod
    def refuses(cls, error: NotUsable) -> Diagnostic:
        return cls(Severity.REFUSES, error)

    @classmethod
    def warns(cls, cause: str, cure: str) -> Diagnostic:
        return cls(Severity.WARNS, NotUsable(cause, cure))

    def __str__(self) -> str:
        return str(self.error)


def lacking(
    kind: str, name: str, needed: Iterable[str], rights: frozenset[str] | None, tools: KafkaTools, *, without: str = ""
) -> Iterator[Diagnostic]:
    """
    Yield the needed rights that are missing; none if the broker does not report rights.

    Args:
        kind: `topic` or `group`.
        needed: the rights, as `kafka-acls` names them.
        without: what fails without the rights; empty if the service cannot run at all.
    """
    missing = [each for each in needed if rights is not None and each not in rights]
    if missing:
        cause = f"Winnow lacks {' and '.join(missing)} on {kind} {name!r}" + (f", so {without}" if without else "")
        cure = tools.allow(missing, f"--{kind} {quote(name)}")
        yield Diagnostic.warns(cause, cure) if without else Diagnostic.refuses(NotAllowed(cause, cure))


def release(brokers: BrokerFacts) -> str:
    """Return the newest Kafka release whose API the brokers support; empty if unknown."""
    return next((name for name, request, version in RELEASES if brokers.versions.get(request, 0) >= version), "")


def without_features(brokers: BrokerFacts, guarantee: Guarantee) -> Iterator[Diagnostic]:
    if not brokers.versions:
        return
    for request, version, what, since in FEATURES if guarantee is Guarantee.EXACTLY_ONCE else ():
        if brokers.versions.get(request, 0) < version:
            cause = f"a broker does not support {request} version {version}: {what}"
            cure = f"upgrade it to Kafka {since}, or set delivery.guarantee to at-least-once"
            yield Diagnostic.refuses(NotUsable(cause, cure))
    if brokers.versions.get("Metadata", 0) < 10:  # the first with topic ids
        cause = "a broker does not support topic ids, so a recreated topic looks like the old one"
        yield Diagnostic.warns(cause, "upgrade it to Kafka 2.8")


def of_clusters(
    ids: tuple[str, str], sources: Collection[str], written: Mapping[str, str], placeholder: str
) -> Iterator[Diagnostic]:
    """
    Yield what follows if sink.kafka is, or may be, the source's cluster.

    Args:
        ids: the ids of the source's and the sink's cluster; empty if unknown.
        written: the topics that Winnow writes to, by configuration key.
        placeholder: the template of the topics that offsets are committed under; empty if the group does not keep them.
    """
    source, sink = ids
    both = [(key, topic) for key, topic in written.items() if topic in sources]
    if not (source and sink):
        for key, topic in both:
            cause = f"the source {topic!r} is also {key}, and a cluster has no id: they may be the same topic"
            yield Diagnostic.warns(cause, "make sure that sink.kafka is not the cluster in kafka")
    elif source == sink:
        same = f"sink.kafka is the source's cluster (id {source})"
        for key, topic in both:
            cause = f"{same}, and the source {topic!r} is also {key}: Winnow would read its own output"
            yield Diagnostic.refuses(NotUsable(cause, f"set {key} to another topic, or sink.kafka to another cluster"))
        if placeholder == "{topic}" or not {placeholder.format(topic=each) for each in sources}.isdisjoint(sources):
            cause = f"{same}, and a placeholder is a source: the copy for lag tools would set the group's offsets back"
            yield Diagnostic.refuses(NotUsable(cause, "omit sink.kafka, or set offsets.placeholder to another name"))
        elif not both:
            cause = f"{same}: offsets are committed to placeholder topics that would otherwise be unnecessary"
            yield Diagnostic.warns(cause, "omit sink.kafka for a new group; keep it for a group that has offsets")


def of_placeholders(names: Collection[str], written: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield which placeholders are also topics that Winnow writes to: a pattern may find a source with such a name."""
    for key, topic in written.items():
        if topic in names:
            harm = "Winnow would commit offsets under its name, and add partitions to it"
            cause = f"the placeholder {topic!r} is also {key}: {harm}"
            yield Diagnostic.refuses(NotUsable(cause, "set offsets.placeholder to another name"))


def of_source(name: str, topic: TopicFacts, tools: KafkaTools) -> Iterator[Diagnostic]:
    if "compact" in topic.setting("cleanup.policy"):
        cause = f"the source {name!r} is compacted: Kafka may delete records before they are read"
        yield Diagnostic.warns(cause, tools.configure(name, "cleanup.policy=delete"))


def of_destination(what: str, name: str, topic: TopicFacts, tools: KafkaTools) -> Iterator[Diagnostic]:
    in_sync = int(topic.setting("min.insync.replicas") or 1)
    if in_sync > topic.replicas:
        least = f"min.insync.replicas is {in_sync}"
        cause = f"the {what} {name!r} accepts no records: its replication factor is {topic.replicas} but {least}"
        cure = tools.configure(name, f"min.insync.replicas={topic.replicas}")
        yield Diagnostic.refuses(NotUsable(cause, f"add replicas, or {cure}"))


def of_times(sink: str, topic: TopicFacts, tools: KafkaTools) -> Iterator[Diagnostic]:
    """Yield whether lines lose their records' timestamps and have no lineage headers to identify them instead."""
    if topic.setting("message.timestamp.type") == "LogAppendTime":
        cause = (
            f"the sink {sink!r} has message.timestamp.type=LogAppendTime: lines lose their records' timestamps, and "
            "winnow audit cannot match them to their records"
        )
        cure = f"set lineage.headers to true, or {tools.configure(sink, 'message.timestamp.type=CreateTime')}"
        yield Diagnostic.warns(cause, cure)


def of_limits(
    sources: Mapping[str, TopicFacts], sink: tuple[str, TopicFacts], tools: KafkaTools
) -> Iterator[Diagnostic]:
    """Yield whether the sink rejects old records that the sources still hold."""
    name, topic = sink
    if topic.setting("message.timestamp.type") == "LogAppendTime":
        return
    limit = TimestampLimit.of(topic.settings or {}, "before")
    older = [source for source, facts in sources.items() if limit and _retention_ms(facts) > limit.milliseconds]
    if limit and older:
        cause = (
            f"the sink {name!r} rejects records older than {_span(limit.milliseconds)} ({limit.setting}), but "
            f"{_named(older)} keeps older ones: they become dead letters with the reason refused"
        )
        yield Diagnostic.warns(cause, tools.configure(name, f"{limit.setting}={UNLIMITED_MS}"))


def of_sizes(
    sources: Mapping[str, TopicFacts], dead_letters: tuple[str, TopicFacts], tools: KafkaTools
) -> Iterator[Diagnostic]:
    """Yield whether dead letters may have to be truncated."""
    name, topic = dead_letters
    room = int(topic.setting("max.message.bytes") or 0)
    sizes = {source: int(facts.setting("max.message.bytes") or 0) for source, facts in sources.items()}
    larger = [source for source, size in sizes.items() if size > room]
    if room and larger:
        most = max(sizes.values())
        cause = (
            f"the dead-letter topic {name!r} accepts {room} bytes (max.message.bytes), but {_named(larger)} accepts "
            f"{most}: larger rejected records are truncated"
        )
        yield Diagnostic.warns(cause, tools.configure(name, f"max.message.bytes={most + 8192}"))


def of_expiry(sources: Mapping[str, TopicFacts], brokers: BrokerFacts, starting: str) -> Iterator[Diagnostic]:
    """
    Yield what follows if brokers delete offsets before the source deletes records; `starting` is `starting.offsets`.

    A running service loses none: it renews them several times in `offsets.retention.minutes` (`app.driver.renewal`).
    """
    minutes = int((brokers.settings or {}).get("offsets.retention.minutes", 0))
    longest = max(map(_retention_ms, sources.values()), default=0)
    if minutes and longest > minutes * 60_000 and starting != "error":
        longer = [source for source, facts in sources.items() if _retention_ms(facts) > minutes * 60_000]
        cause = (
            f"brokers delete the offsets of an idle group after {_span(minutes * 60_000)} (offsets.retention.minutes), "
            f"but {_named(longer)} keeps records for longer: after an outage of that length the service would start at "
            f"starting.offsets ({starting})"
        )
        longer_still = "" if longest == UNLIMITED_MS else f", or offsets.retention.minutes to {-(-longest // 60_000)}"
        yield Diagnostic.warns(cause, f"set starting.offsets to error once the group has offsets{longer_still}")


class ClockReading(NamedTuple):
    """When a broker last wrote an offset by its clock, and when we asked by ours; both in seconds."""

    newest: float | None
    at: float


def of_clocks(first: ClockReading, second: ClockReading) -> Iterator[Diagnostic]:
    """
    Yield how far the clocks differ, as far as can be known without writing anything.

    A broker's clock is never behind what it has written. It is known not to be ahead only if the broker wrote between
    the two looks.
    """
    if first.newest is None or second.newest is None:
        return
    behind = second.newest - second.at
    ahead = first.at - second.newest if second.newest > first.newest else 0.0
    if behind > CLOCK_SECONDS or ahead > CLOCK_SECONDS:
        way, by = ("behind", behind) if behind > 0 else ("ahead of", ahead)
        cause = f"this machine's clock is at least {by:.0f} s {way} the brokers' clocks"
        yield Diagnostic.warns(cause, "synchronize this machine, the executors and the brokers by NTP")


def _retention_ms(topic: TopicFacts) -> int:
    """Return how long a topic keeps records; 0 if unknown."""
    if topic.settings is None:
        return 0
    milliseconds = int(topic.setting("retention.ms") or -1)
    return milliseconds if milliseconds >= 0 and "delete" in topic.setting("cleanup.policy") else UNLIMITED_MS


def _named(topics: list[str]) -> str:
    others = f" (and {len(topics) - 1} more)" if len(topics) > 1 else ""
    return f"{topics[0]!r}{others}"


def _span(milliseconds: float) -> str:
    return str(timedelta(milliseconds=milliseconds)).removesuffix(", 0:00:00")
