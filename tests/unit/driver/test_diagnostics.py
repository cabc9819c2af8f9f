"""The diagnostics of a preflight, each with the facts that cause it, and none if all is well."""

from __future__ import annotations

from typing import ClassVar

import pytest

from app.cures import KafkaTools
from app.driver.diagnostics import (
    ClockReading,
    Diagnostic,
    Severity,
    lacking,
    of_clocks,
    of_clusters,
    of_destination,
    of_expiry,
    of_limits,
    of_placeholders,
    of_sizes,
    of_source,
    of_times,
    release,
    without_features,
)
from app.driver.preflight import refuse
from app.errors import NotAllowed, NotUsable
from app.facts import BrokerFacts, TopicFacts
from app.model import UNLIMITED_MS, Guarantee
from app.topics import PLACEHOLDER

NEW = {"OffsetFetch": 10, "TxnOffsetCommit": 5, "InitProducerId": 5, "Metadata": 13, "Produce": 13}
DAY_MS = 86_400_000
TOOLS = KafkaTools("there:9092")


def topic(replicas: int = 3, **settings: object) -> TopicFacts:
    """Return a topic with these settings; `_` stands for a dot."""
    kept = {"cleanup.policy": "delete"} | {name.replace("_", "."): str(value) for name, value in settings.items()}
    return TopicFacts(None, replicas, kept)


class TestClusters:
    """Two broker addresses may be one cluster; only the ids tell."""

    WRITTEN: ClassVar = {"sink.topic": "clean", "dead.letters.topic": "dead"}

    def test_two_are_two(self) -> None:
        """Topics of two clusters may have the same name."""
        assert [] == list(of_clusters(("a", "b"), ["raw", "clean"], self.WRITTEN, PLACEHOLDER))

    def test_one_that_feeds_itself_refuses(self) -> None:
        """Each topic that is both read and written is named."""
        found = list(of_clusters(("a", "a"), ["clean", "dead"], self.WRITTEN, PLACEHOLDER))

        assert [Severity.REFUSES] * 2 == [each.severity for each in found]
        assert (
            "sink.kafka is the source's cluster (id a), and the source 'clean' is also sink.topic: Winnow would read "
            "its own output: set sink.topic to another topic, or sink.kafka to another cluster"
        ) == str(found[0])

    def test_one_that_does_not_feed_itself_warns(self) -> None:
        """It works, but its offsets are stored where no other tool looks."""
        (diagnostic,) = of_clusters(("a", "a"), ["raw"], self.WRITTEN, PLACEHOLDER)

        assert Severity.WARNS is diagnostic.severity
        assert str(diagnostic).startswith("sink.kafka is the source's cluster (id a): offsets are committed to")

    @pytest.mark.parametrize(
        ("placeholder", "sources"), [("{topic}", []), ("{topic}", ["raw"]), ("{topic}-2", ["raw", "raw-2"])]
    )
    def test_one_whose_placeholder_is_a_source_refuses(self, placeholder: str, sources: list[str]) -> None:
        """The store and its copy would be the same offset, and the copy is about a second old."""
        (diagnostic,) = of_clusters(("a", "a"), sources, self.WRITTEN, placeholder)

        assert Severity.REFUSES is diagnostic.severity
        assert (
            "sink.kafka is the source's cluster (id a), and a placeholder is a source: the copy for lag tools would set "
            "the group's offsets back: omit sink.kafka, or set offsets.placeholder to another name"
        ) == str(diagnostic)
        assert [] == list(of_clusters(("a", "b"), sources, self.WRITTEN, placeholder))

    @pytest.mark.parametrize("ids", [("", "a"), ("a", ""), ("", "")], ids=["source", "sink", "neither"])
    def test_what_is_not_known_is_said(self, ids: tuple[str, str]) -> None:
        """There is no verdict about unknown ids. If no topic name is in both, it does not matter."""
        (diagnostic,) = of_clusters(ids, ["clean"], self.WRITTEN, PLACEHOLDER)

        assert Severity.WARNS is diagnostic.severity
        assert "a cluster has no id: they may be the same topic" in str(diagnostic)
        assert [] == list(of_clusters(ids, ["raw"], self.WRITTEN, PLACEHOLDER))


def test_a_placeholder_that_is_an_output_refuses() -> None:
    """A pattern may find a source whose placeholder has that name."""
    (diagnostic,) = of_placeholders(["a-2", "clean"], TestClusters.WRITTEN)

    assert Severity.REFUSES is diagnostic.severity
    assert str(diagnostic).startswith("the placeholder 'clean' is also sink.topic: ")


class TestRights:
    """Only the missing rights are named, with the command to grant them."""

    def test_a_missing_right_refuses(self) -> None:
        """The service cannot run without it."""
        (diagnostic,) = lacking("topic", "raw", ["Describe", "Read"], frozenset({"Describe"}), TOOLS)

        assert Severity.REFUSES is diagnostic.severity
        assert isinstance(diagnostic.error, NotAllowed)
        assert (
            "Winnow lacks Read on topic 'raw': "
            "kafka-acls --bootstrap-server there:9092 --add --allow-principal User:NAME --operation Read --topic raw"
        ) == str(diagnostic)

    def test_a_right_that_only_a_part_needs_warns(self) -> None:
        """The diagnostic says which feature needs it."""
        (diagnostic,) = lacking("group", "g", ["Read"], frozenset(), TOOLS, without="winnow pause does not work")

        assert Severity.WARNS is diagnostic.severity
        assert str(diagnostic).startswith("Winnow lacks Read on group 'g', so winnow pause does not work: kafka-acls ")

    def test_a_name_is_one_word_of_the_command(self) -> None:
        """A group may have any name."""
        (diagnostic,) = lacking("group", "a $(b)", ["Read"], frozenset(), TOOLS)

        assert str(diagnostic).endswith("--operation Read --group 'a $(b)'")

    @pytest.mark.parametrize("rights", [None, frozenset({"Read", "Write"})])
    def test_nothing_is_missing(self, rights: frozenset[str] | None) -> None:
        """The same holds if the broker does not report rights."""
        assert [] == list(lacking("topic", "raw", ["Read"], rights, TOOLS))


class TestFeatures:
    """Features that the brokers lack."""

    def test_brokers_that_know_everything(self) -> None:
        """The same holds if nothing is known about the brokers."""
        assert [] == list(without_features(BrokerFacts(NEW), Guarantee.EXACTLY_ONCE))
        assert [] == list(without_features(BrokerFacts(), Guarantee.EXACTLY_ONCE))

    def test_transactions_without_stable_offsets(self) -> None:
        """Kafka 2.4 supports neither KIP-447 nor topic ids. With at-least-once, only topic ids matter."""
        old = BrokerFacts(NEW | {"OffsetFetch": 6, "TxnOffsetCommit": 2, "Metadata": 9})

        refusal, other, warning = without_features(old, Guarantee.EXACTLY_ONCE)

        assert (
            "a broker does not support OffsetFetch version 7: stable offsets (KIP-447): upgrade it to Kafka 2.5, or set "
            "delivery.guarantee to at-least-once"
        ) == str(refusal)
        assert "TxnOffsetCommit version 3" in str(other)
        assert Severity.WARNS is warning.severity
        assert [str(warning)] == list(map(str, without_features(old, Guarantee.AT_LEAST_ONCE)))

    @pytest.mark.parametrize(
        ("versions", "name"),
        [({"Produce": 13}, "4.1"), ({"Produce": 11}, "3.7"), ({"OffsetFetch": 7}, "2.5"), ({}, "")],
    )
    def test_the_release_is_told_by_its_requests(self, versions: dict[str, int], name: str) -> None:
        """It is the newest one whose request version is supported."""
        assert name == release(BrokerFacts(versions))


class TestTopics:
    """Problems of topic settings."""

    def test_topics_as_they_should_be(self) -> None:
        """There are no diagnostics, nor if the settings may not be read."""
        for each in (topic(), TopicFacts(None)):
            assert [] == [*of_source("raw", each, TOOLS), *of_destination("sink", "clean", each, TOOLS)]
            assert [] == [
                *of_limits({"raw": each}, ("clean", each), TOOLS),
                *of_sizes({"raw": each}, ("dead", each), TOOLS),
            ]

    def test_a_compacted_source(self) -> None:
        """Records would vanish before they are read."""
        (diagnostic,) = of_source("raw", topic(cleanup_policy="compact,delete"), TOOLS)

        assert "the source 'raw' is compacted" in str(diagnostic)
        assert str(diagnostic).endswith("there:9092 --alter --topic raw --add-config cleanup.policy=delete")

    def test_too_few_replicas_refuse(self) -> None:
        """No write would ever be acknowledged."""
        (diagnostic,) = of_destination("sink", "clean", topic(1, min_insync_replicas=2), TOOLS)

        assert Severity.REFUSES is diagnostic.severity
        assert "the sink 'clean' accepts no records: its replication factor is 1 but min.insync.replicas is 2" in str(
            diagnostic
        )

    def test_the_time_of_writing(self) -> None:
        """An audit matches lines by their timestamp."""
        (diagnostic,) = of_times("clean", topic(message_timestamp_type="LogAppendTime"), TOOLS)

        assert "winnow audit cannot match them to their records: set lineage.headers to true, or kafka-configs" in str(
            diagnostic
        )
        assert [] == list(of_times("clean", topic(message_timestamp_type="CreateTime"), TOOLS))

    def test_records_that_are_too_old_for_the_sink(self) -> None:
        """They would all become dead letters, unless the sink sets timestamps itself."""
        sink = {"message_timestamp_before_max_ms": DAY_MS}
        sources = {"a": topic(retention_ms=DAY_MS), "b": topic(retention_ms=-1), "c": topic(retention_ms=2 * DAY_MS)}

        (diagnostic,) = of_limits(sources, ("clean", topic(**sink)), TOOLS)

        assert "older than 1 day (message.timestamp.before.max.ms), but 'b' (and 1 more) keeps older" in str(diagnostic)
        assert [] == list(of_limits(sources, ("clean", topic(message_timestamp_type="LogAppendTime", **sink)), TOOLS))
        assert [] == list(of_limits(sources, ("clean", topic(message_timestamp_before_max_ms=UNLIMITED_MS)), TOOLS))

    def test_records_that_are_too_old_for_the_sink_of_brokers_before_kafka_4(self) -> None:
        """Until Kafka 3.5 they have only this setting; until 3.9 it counts if its successor is unset."""
        sources = {"raw": topic(retention_ms=2 * DAY_MS)}
        sink = {"message_timestamp_difference_max_ms": DAY_MS}

        for unset in ({}, {"message_timestamp_before_max_ms": UNLIMITED_MS}):
            (diagnostic,) = of_limits(sources, ("clean", topic(**sink, **unset)), TOOLS)

            assert "older than 1 day (message.timestamp.difference.max.ms), but 'raw' keeps older" in str(diagnostic)
            assert str(diagnostic).endswith(f"--add-config message.timestamp.difference.max.ms={UNLIMITED_MS}")

    def test_dead_letters_that_are_cut(self) -> None:
        """A dead letter's headers need room, too."""
        (diagnostic,) = of_sizes({"raw": topic(max_message_bytes=9000)}, ("dead", topic(max_message_bytes=1000)), TOOLS)

        assert "accepts 1000 bytes (max.message.bytes), but 'raw' accepts 9000: larger rejected records" in str(
            diagnostic
        )
        assert str(diagnostic).endswith("--add-config max.message.bytes=17192")


class TestExpiry:
    """Brokers that delete offsets."""

    def found(self, minutes: int | None, retention_ms: int, starting: str = "earliest") -> list[str]:
        settings = None if minutes is None else {"offsets.retention.minutes": str(minutes)}
        sources, brokers = {"raw": topic(retention_ms=retention_ms)}, BrokerFacts({}, settings)
        return list(map(str, of_expiry(sources, brokers, starting)))

    def test_offsets_that_outlive_the_records(self) -> None:
        """The records that would be read again are gone; unknown settings cause no diagnostic."""
        assert [] == self.found(10_080, 7 * DAY_MS)
        assert [] == self.found(None, -1)

    def test_records_that_outlive_their_offsets(self) -> None:
        """After a long outage they would be cleansed again."""
        (said,) = self.found(10_080, 14 * DAY_MS)

        assert (
            "brokers delete the offsets of an idle group after 7 days (offsets.retention.minutes), but 'raw' keeps records "
            "for longer: after an outage of that length the service would start at starting.offsets (earliest): set "
            "starting.offsets to error once the group has offsets, or offsets.retention.minutes to 20160"
        ) == said
        assert [] == self.found(10_080, 14 * DAY_MS, "error")
        (said,) = self.found(10_080, -1)
        assert said.endswith("once the group has offsets")

    def test_idle_partitions_are_renewed_in_time(self) -> None:
        """However soon brokers delete offsets, a running service loses none."""
        assert [] == self.found(1, 1)


class TestClocks:
    """What can be known about the brokers' clocks without writing anything."""

    @pytest.mark.parametrize(
        ("first", "second", "said"),
        [
            (ClockReading(None, 1000), ClockReading(None, 1001), ""),
            (ClockReading(900, 1000), ClockReading(900, 1001), ""),
            (ClockReading(1099, 1000), ClockReading(1099, 1001), "at least 98 s behind"),
            (ClockReading(899, 1000), ClockReading(900, 1001), "at least 100 s ahead of"),
            (ClockReading(999, 1000), ClockReading(1000, 1001), ""),
        ],
        ids=["nothing is known", "an old commit", "a commit in the future", "a new commit in the past", "alike"],
    )
    def test_clocks(self, first: ClockReading, second: ClockReading, said: str) -> None:
        """An old commit only shows that the brokers' clock is not behind it."""
        found = "".join(map(str, of_clocks(first, second)))

        assert said in found
        assert bool(said) == bool(found)


class TestRefuse:
    """How a start handles diagnostics."""

    RIGHT = Diagnostic.refuses(NotAllowed("may not", "allow it"))
    OTHER = Diagnostic.refuses(NotUsable("cannot", "mend it"))
    WARNING = Diagnostic.warns("soon", "mind it")

    def test_warnings_are_returned(self) -> None:
        """The service still runs."""
        assert ["soon: mind it"] == refuse([self.WARNING])

    @pytest.mark.parametrize(
        ("diagnostics", "kind", "text"),
        [
            ([RIGHT, WARNING], NotAllowed, "may not: allow it"),
            ([RIGHT, RIGHT], NotAllowed, "may not: allow it\nmay not: allow it"),
            ([RIGHT, OTHER], NotUsable, "may not: allow it\ncannot: mend it"),
        ],
    )
    def test_all_refusals_are_raised(self, diagnostics: list[Diagnostic], kind: type[NotUsable], text: str) -> None:
        """Missing rights alone are retried: a restarted broker knows no ACLs for a moment."""
        with pytest.raises(NotUsable) as raised:
            refuse(diagnostics)

        assert kind is type(raised.value)
        assert text == str(raised.value)
