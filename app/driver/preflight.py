"""
Checks that the service could run against Kafka as it is. Read-only; used by `winnow check --connect` and each start.

Rights are checked first: without them, Kafka answers other requests as if the topics did not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from app.config import Config
from app.cures import KafkaTools
from app.driver import diagnostics
from app.driver.clients import Clients, InspectedCluster
from app.driver.diagnostics import ClockReading, Diagnostic, Severity
from app.driver.pause import GROUP
from app.errors import NotUsable, TopicMissing
from app.facts import BrokerFacts, TopicFacts
from app.model import Guarantee
from app.runtime import REAL, Runtime

PARTITIONS = 8
"""The suggested number of partitions for a new topic, if nothing says how many it needs."""
READ = ("Describe", "Read")
UNKNOWN_LIMITS = "its limits on records are unknown until it rejects one"
UNKNOWN_RETENTION = "no metric or alert tells when retention is about to delete unread records"
UNREAD = "winnow pause, winnow audit and winnow dlq do not work"
NO_ROOM = "the source partitions that it does not have are blocked until somebody adds them"


class Preflight:
    """Asks Kafka, and judges the answers."""

    def __init__(self, config: Config, clients: Clients, runtime: Runtime = REAL) -> None:
        self._config = config
        self._clients = clients
        self._clock = runtime.wall_clock
        self._exactly_once = config.delivery_guarantee is Guarantee.EXACTLY_ONCE
        self._in_kafka = clients.offsets.transactional
        self._two = bool(config.placeholder)
        self._brokers = BrokerFacts()
        """The brokers of the sink's cluster."""
        self._clocks = ClockReading(None, 0.0)
        self._topics: list[str] = []
        """The source topics."""

    def rights(self) -> list[Diagnostic]:
        """
        Return the missing rights and topics, and the features that the brokers lack.

        Raises Unreachable, or NotUsable if Kafka refuses every request.
        """
        return list(self._rights(*self._clients.clusters)) if self._clients.clusters else []

    def _rights(self, source: InspectedCluster, sink: InspectedCluster) -> Iterator[Diagnostic]:
        self._brokers = sink.brokers()
        self._clocks = self._read_clocks(sink)
        yield from diagnostics.without_features(self._brokers, self._config.delivery_guarantee)
        named, pattern = self._config.source.topics, self._config.source.topics_pattern
        topics = self._topics = sorted(named if pattern is None else self._clients.topics.matching(pattern))
        sources = source.topics(topics)
        by_key = {"sink.topic": self._config.sink.topic, "dead.letters.topic": self._config.dead_letters.topic}
        if self._two:
            placeholder = self._config.placeholder if self._in_kafka else ""
            yield from diagnostics.of_clusters((source.id(), sink.id()), topics, by_key, placeholder)
        # A topic found only by the pattern may belong to others; the service runs without it.
        unread = "its partitions are not read" if pattern else ""
        yield from _of_topics(source, sources, topics, READ, unread)
        yield from _of_topics(source, sources, topics, ["DescribeConfigs"], UNKNOWN_RETENTION)
        if self._two and self._in_kafka:
            placeholders = [self._config.placeholder.format(topic=each) for each in topics]
            yield from diagnostics.of_placeholders(placeholders, by_key)
            found = sink.topics(sorted(placeholders))
            yield from _of_topics(sink, found, placeholders, READ)
            growing = {
                name
                for topic, name in zip(topics, placeholders, strict=True)
                if topic in sources and name in found and 0 < found[name].partitions < sources[topic].partitions
            }
            yield from _of_topics(sink, found, sorted(growing), ["Alter"], NO_ROOM)
        group = self._config.group_id
        if self._two:
            yield from _of_group(source, group, ["Describe"])
            yield from _of_group(source, group, ["Read"], "tools that monitor lag on that cluster see no offsets")
        names = self._config.sink.topic, self._config.dead_letters.topic
        written = sink.topics(sorted(names))
        # If an outage leaves a commit unanswered, the output itself shows whether it succeeded. Without the right to
        # read the output, the partition would have to wait.
        needed, useful = ((*READ, "Write"), ()) if self._exactly_once else (("Describe", "Write"), ("Read",))
        for name in names:
            yield from _of_topics(sink, written, [name], needed)
            yield from _of_topics(sink, written, [name], useful, UNREAD)
            yield from _of_topics(sink, written, [name], ["DescribeConfigs"], UNKNOWN_LIMITS)
        largest = max((each.partitions for each in sources.values()), default=0) or PARTITIONS
        yield from _missing(source, topics, sources, PARTITIONS)
        yield from _missing(sink, names, written, largest)
        yield from _of_group(sink, group, READ if self._in_kafka else ["Describe"])
        yield from _of_group(sink, GROUP.format(group), READ, "winnow pause does not work")
        if self._exactly_once:
            yield from _refusals(self._clients.fence.refuse_forbidden_ids)
        if self._brokers.settings is None:
            cure = sink.tools.allow(["DescribeConfigs"], "--cluster")
            unknown = "transaction.max.timeout.ms and offsets.retention.minutes are unknown"
            yield Diagnostic.warns(f"Winnow lacks DescribeConfigs on the brokers, so {unknown}", cure)

    def settings(self) -> list[Diagnostic]:
        """Return what is wrong with the settings of topics and brokers. Call `rights` first; it raises the same."""
        found = list(_refusals(self._refuse_compacted))
        if self._exactly_once:
            found += _refusals(self._clients.fence.refuse_short_transactions)
        return [*found, *(self._settings(*self._clients.clusters) if self._clients.clusters else ())]

    def _refuse_compacted(self) -> None:
        """Refuse a compacted dead-letter topic: it deletes records and rejects those without a key."""
        topic = self._config.dead_letters.topic
        if self._clients.destinations.destination(topic).compacted:
            msg = f"the dead-letter topic {topic!r} is compacted: it rejects records without a key and deletes others"
            raise NotUsable(msg, KafkaTools.of(self._config.output_kafka).configure(topic, "cleanup.policy=delete"))

    def _settings(self, source: InspectedCluster, sink: InspectedCluster) -> Iterator[Diagnostic]:
        names = self._config.sink.topic, self._config.dead_letters.topic
        sources, written = source.topics(self._topics), sink.topics(names)
        lines, dead_letters = (written.get(name, TopicFacts(None)) for name in names)
        for name, facts in sources.items():
            yield from diagnostics.of_source(name, facts, source.tools)
        yield from diagnostics.of_destination("sink", names[0], lines, sink.tools)
        yield from diagnostics.of_destination("dead-letter topic", names[1], dead_letters, sink.tools)
        if not self._config.lineage.headers:
            yield from diagnostics.of_times(names[0], lines, sink.tools)
        yield from diagnostics.of_limits(sources, (names[0], lines), sink.tools)
        yield from diagnostics.of_sizes(sources, (names[1], dead_letters), sink.tools)
        if self._in_kafka:
            starting = self._config.starting_offsets
            text = starting if isinstance(starting, str) else "a time"
            yield from diagnostics.of_expiry(sources, self._brokers, text)
        yield from diagnostics.of_clocks(self._clocks, self._read_clocks(sink))

    def _read_clocks(self, cluster: InspectedCluster) -> ClockReading:
        return ClockReading(cluster.newest_commit(), self._clock())

    @property
    def release(self) -> str:
        """The newest Kafka release whose API the brokers support; empty if unknown, or before `rights`."""
        return diagnostics.release(self._brokers)


def refuse(found: Iterable[Diagnostic]) -> list[str]:
    """Return the warnings. Raises the refusals: one as it is, several of one type as that, others as NotUsable."""
    found = list(found)
    refusals = [each.error for each in found if each.severity is Severity.REFUSES]
    if refusals:
        kinds = {type(each) for each in refusals}
        kind = kinds.pop() if len(kinds) == 1 else NotUsable
        raise refusals[0] if len(refusals) == 1 else kind("\n".join(map(str, refusals)))
    return list(map(str, found))


def _refusals(check: Callable[[], object]) -> Iterator[Diagnostic]:
    try:
        check()
    except NotUsable as error:
        yield Diagnostic.refuses(error)


def _of_topics(
    cluster: InspectedCluster,
    found: Mapping[str, TopicFacts],
    names: Iterable[str],
    needed: Iterable[str],
    without: str = "",
) -> Iterator[Diagnostic]:
    """Yield the missing rights on topics that exist."""
    for name in names:
        if name in found:
            yield from diagnostics.lacking("topic", name, needed, found[name].rights, cluster.tools, without=without)


def _missing(
    cluster: InspectedCluster, names: Iterable[str], found: Mapping[str, TopicFacts], partitions: int
) -> Iterator[Diagnostic]:
    for name in names:
        if name not in found:
            yield Diagnostic.refuses(TopicMissing.named(name, cluster.tools, partitions))


def _of_group(cluster: InspectedCluster, group: str, needed: Iterable[str], without: str = "") -> Iterator[Diagnostic]:
    yield from diagnostics.lacking("group", group, needed, cluster.group_rights(group), cluster.tools, without=without)
