"""What a preflight finds, each thing in one place. Pure: what Kafka says goes in, sentences come out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from app.cures import KafkaTools
from app.errors import NotAllowed, NotUsable
from app.facts import BrokerFacts, TopicFacts
from app.model import Guarantee

UNLIMITED_MS = (1 << 63) - 1
FEATURES = (
    ("OffsetFetch", 7, "stable offsets (KIP-447)", "2.5"),
    ("TxnOffsetCommit", 3, "transactions of a group (KIP-447)", "2.5"),
    ("InitProducerId", 3, "producers that go on after an error (KIP-360)", "2.5"),
)
"""What transactions need: a request, its version, what that is, and the first Kafka that has it."""
TOPIC_IDS = ("Metadata", 10)
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
"""Releases of Kafka, the newest first, and a request that each of them brought."""
CLOCK_SECONDS = 60.0
"""How far clocks may differ: what a task allows them (`app.executor.limits`)."""


class Severity(StrEnum):
    """What a finding means for the service."""

    REFUSES = "refuses"
    WARNS = "warns"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    What a preflight has found.

    Args:
        severity: whether the service refuses to run.
        error: what, where, and what to type.
    """

    severity: Severity
    error: NotUsable

    @classmethod
    def refuses(cls, error: NotUsable) -> Finding:
        """Return a finding with which the service cannot run."""
        return cls(Severity.REFUSES, error)

    @classmethod
    def warns(cls, cause: str, cure: str) -> Finding:
        """Return a finding with which it can, until something else happens."""
        return cls(Severity.WARNS, NotUsable(cause, cure))

    def __str__(self) -> str:
        return str(self.error)


class Need(NamedTuple):
    """
    Rights that Winnow needs.

    Args:
        kind: `topic` or `group`.
        name: its name.
        operations: the rights, by the names of `kafka-acls`.
        without: what does not work without them; empty where nothing does.
    """

    kind: str
    name: str
    operations: tuple[str, ...]
    without: str = ""


def lacking(need: Need, rights: frozenset[str] | None, tools: KafkaTools) -> Iterator[Finding]:
    """Yield which of the needed rights are missing; none where the broker tells of none."""
    missing = [each for each in need.operations if rights is not None and each not in rights]
    if missing:
        without = f", so {need.without}" if need.without else ""
        cause = f"Winnow may not {' and '.join(missing)} on {need.kind} {need.name!r}{without}"
        cure = tools.allow(missing, f"--{need.kind} {need.name}")
        yield Finding.warns(cause, cure) if without else Finding.refuses(NotAllowed(cause, cure))


def release(brokers: BrokerFacts) -> str:
    """Return the Kafka whose requests the brokers know; empty where that is not known."""
    known = brokers.versions
    return next((name for name, request, version in RELEASES if known.get(request, 0) >= version), "")


def without_features(brokers: BrokerFacts, guarantee: Guarantee) -> Iterator[Finding]:
    """Yield what the brokers cannot do."""
    if not brokers.versions:
        return
    for request, version, what, since in FEATURES if guarantee is Guarantee.EXACTLY_ONCE else ():
        if brokers.versions.get(request, 0) < version:
            cause = f"a broker does not know {request} version {version}: {what}"
            yield Finding.refuses(
                NotUsable(cause, f"upgrade it to Kafka {since}, or set delivery.guarantee to at-least-once")
            )
    request, version = TOPIC_IDS
    if brokers.versions.get(request, 0) < version:
        cause = "a broker gives topics no id, so a topic that is deleted and created again looks like the old one"
        yield Finding.warns(cause, "upgrade it to Kafka 2.8")


def of_clusters(ids: tuple[str, str], sources: Collection[str], written: Mapping[str, str]) -> Iterator[Finding]:
    """
    Yield whether sink.kafka is the cluster of the source, and what follows.

    Args:
        ids: what the clusters of source and sink call themselves; empty where one does not tell.
        sources: the source topics.
        written: the topics that are written to, by the key that names them.
    """
    source, sink = ids
    both = [(key, topic) for key, topic in written.items() if topic in sources]
    if not (source and sink):
        for key, topic in both:
            cause = f"the source {topic!r} is also {key}, and a cluster does not tell its id: they may be one topic"
            yield Finding.warns(cause, "make sure that sink.kafka is another cluster than kafka")
    elif source == sink:
        same = f"sink.kafka is the cluster of the source (id {source})"
        for key, topic in both:
            cause = f"{same}, and the source {topic!r} is also {key}: Winnow would read its own output"
            yield Finding.refuses(NotUsable(cause, f"name another topic in {key}, or another cluster in sink.kafka"))
        if not both:
            cause = f"{same}: offsets are committed to placeholders of the source topics, which nothing else needs"
            yield Finding.warns(cause, "leave sink.kafka out for a new group; one that has offsets keeps it")


def of_source(name: str, topic: TopicFacts, tools: KafkaTools) -> Iterator[Finding]:
    """Yield what is wrong with a source topic."""
    if "compact" in topic.setting("cleanup.policy"):
        cause = f"the source {name!r} is compacted: Kafka may delete records before they are read"
        yield Finding.warns(cause, tools.configure(name, "cleanup.policy=delete"))


def of_destination(what: str, name: str, topic: TopicFacts, tools: KafkaTools) -> Iterator[Finding]:
    """Yield what is wrong with the sink or the dead-letter topic."""
    in_sync = int(topic.setting("min.insync.replicas") or 1)
    if in_sync > topic.replicas:
        least = f"min.insync.replicas is {in_sync}"
        cause = f"the {what} {name!r} takes no record: its replication factor is {topic.replicas}, and {least}"
        cure = tools.configure(name, f"min.insync.replicas={topic.replicas}")
        yield Finding.refuses(NotUsable(cause, f"give it more replicas, or {cure}"))


def of_times(sink: str, topic: TopicFacts, tools: KafkaTools) -> Iterator[Finding]:
    """Yield whether lines lose the time of their records, and nothing else says which record they were."""
    if topic.setting("message.timestamp.type") == "LogAppendTime":
        cause = (
            f"the sink {sink!r} has message.timestamp.type LogAppendTime: lines lose the time of their records, and "
            "winnow audit cannot know them"
        )
        yield Finding.warns(
            cause, f"set lineage.headers to true, or {tools.configure(sink, 'message.timestamp.type=CreateTime')}"
        )


def of_limits(sources: Mapping[str, TopicFacts], sink: tuple[str, TopicFacts], tools: KafkaTools) -> Iterator[Finding]:
    """Yield what the sink does not take of what the sources keep."""
    name, topic = sink
    if topic.setting("message.timestamp.type") == "LogAppendTime":
        return
    before = int(topic.setting("message.timestamp.before.max.ms") or UNLIMITED_MS)
    older = [source for source, facts in sources.items() if _retention_ms(facts) > before]
    if before < UNLIMITED_MS and older:
        cause = (
            f"the sink {name!r} refuses records older than {_span(before)} (message.timestamp.before.max.ms), and "
            f"{_named(older)} keeps older ones: they become dead letters, with the reason refused"
        )
        yield Finding.warns(cause, tools.configure(name, f"message.timestamp.before.max.ms={UNLIMITED_MS}"))


def of_sizes(
    sources: Mapping[str, TopicFacts], dead_letters: tuple[str, TopicFacts], tools: KafkaTools
) -> Iterator[Finding]:
    """Yield whether dead letters may have to be cut."""
    name, topic = dead_letters
    room = int(topic.setting("max.message.bytes") or 0)
    sizes = {source: int(facts.setting("max.message.bytes") or 0) for source, facts in sources.items()}
    larger = [source for source, size in sizes.items() if size > room]
    if room and larger:
        most = max(sizes.values())
        cause = (
            f"the dead-letter topic {name!r} takes {room} bytes (max.message.bytes), and {_named(larger)} takes "
            f"{most}: a rejected record that is larger is cut"
        )
        yield Finding.warns(cause, tools.configure(name, f"max.message.bytes={most + 8192}"))


class Expiry(NamedTuple):
    """
    When offsets that nobody commits are forgotten, and what follows.

    Args:
        starting: what `starting.offsets` says.
        round_seconds: how often the offsets of idle partitions are renewed.
        checks: how many times `round.interval` that is.
    """

    starting: str
    round_seconds: float
    checks: int


def of_expiry(sources: Mapping[str, TopicFacts], brokers: BrokerFacts, expiry: Expiry) -> Iterator[Finding]:
    """Yield what follows where brokers forget offsets before the source forgets records."""
    minutes = int((brokers.settings or {}).get("offsets.retention.minutes", 0))
    forgotten = (
        f"brokers forget offsets that nobody commits after {_span(minutes * 60_000)} (offsets.retention.minutes)"
    )
    if minutes and minutes * 60 < 2 * expiry.round_seconds:
        interval = minutes * 60 / 2 / expiry.checks
        cause = f"{forgotten}, and those of idle partitions are renewed every {_span(expiry.round_seconds * 1000)}"
        yield Finding.warns(cause, f"set round.interval to {interval:g}s or less, or offsets.retention.minutes to 1440")
    longest = max(map(_retention_ms, sources.values()), default=0)
    if minutes and longest > minutes * 60_000 and expiry.starting != "error":
        longer = [source for source, facts in sources.items() if _retention_ms(facts) > minutes * 60_000]
        cause = (
            f"{forgotten}, and {_named(longer)} keeps records for longer: after a stop of that length the service "
            f"would begin at starting.offsets ({expiry.starting})"
        )
        enough = "" if longest == UNLIMITED_MS else f", or offsets.retention.minutes to {-(-longest // 60_000)}"
        yield Finding.warns(cause, f"set starting.offsets to error once the group has offsets{enough}")


class Look(NamedTuple):
    """When a broker had last written an offset by its clock, and when we asked by ours; both in seconds."""

    newest: float | None
    at: float


def of_clocks(first: Look, second: Look) -> Iterator[Finding]:
    """
    Yield how far the clocks differ, as far as that can be known without writing anything.

    A broker's clock cannot be earlier than what it has written. Only if it has written between two looks, it cannot be
    later than that either.
    """
    if first.newest is None or second.newest is None:
        return
    behind = second.newest - second.at
    ahead = first.at - second.newest if second.newest > first.newest else 0.0
    if behind > CLOCK_SECONDS or ahead > CLOCK_SECONDS:
        way, by = ("behind", behind) if behind > 0 else ("ahead of", ahead)
        cause = f"this machine's clock is {by:.0f} s or more {way} that of the brokers"
        yield Finding.warns(cause, "set the clocks by NTP, on this machine, the executors and the brokers")


def _retention_ms(topic: TopicFacts) -> int:
    """Return for how long a topic keeps records; 0 where that is not known."""
    if topic.settings is None:
        return 0
    milliseconds = int(topic.setting("retention.ms") or -1)
    return milliseconds if milliseconds >= 0 and "delete" in topic.setting("cleanup.policy") else UNLIMITED_MS


def _named(topics: list[str]) -> str:
    others = f" (and {len(topics) - 1} more)" if len(topics) > 1 else ""
    return f"{topics[0]!r}{others}"


def _span(milliseconds: float) -> str:
    return str(timedelta(milliseconds=milliseconds)).removesuffix(", 0:00:00")
