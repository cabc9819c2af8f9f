"""Which topics are sources, and what a destination accepts."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid
from confluent_kafka.admin import AclOperation, ConfigResource  # type: ignore[attr-defined]  # not in its __all__

from app.cures import ANY
from app.errors import TopicMissing
from app.kafka.admin import AdminConnection
from app.kafka.topics import USUAL_MAX_BYTES, KafkaTopics
from app.model import Destination, TimestampLimit
from app.topics import OwnTopics


class TopicsConnection(AdminConnection):
    """A connection to a cluster with these topics of one partition each, of which one may be unreadable for us."""

    def __init__(
        self,
        *topics: str,
        settings: Mapping[str, str] | KafkaError | None = None,
        unreadable: str = "",
        topic_id: object = "id",
    ) -> None:
        self._topics = topics
        self._topic_id = topic_id
        self._unreadable = unreadable
        self._settings = settings or {}
        self.client, self.tools = self, ANY  # type: ignore[assignment]  # all that it is asked for

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics=dict.fromkeys(self._topics))

    def describe_topics(
        self, wanted: Any, request_timeout: float, include_authorized_operations: bool
    ) -> dict[str, Future[Any]]:
        led = SimpleNamespace(id=0, leader=SimpleNamespace(id=1), isr=[1, 2], replicas=[1, 2, 3])
        found = {name: Future[Any]() for name in wanted.topic_names}
        for name, future in found.items():
            if name in self._topics:
                rights = [AclOperation.DESCRIBE, *([] if name == self._unreadable else [AclOperation.READ])]
                told = rights if include_authorized_operations else None
                future.set_result(
                    SimpleNamespace(topic_id=self._topic_id, partitions=[led], authorized_operations=told)
                )
            else:
                impossible = len(name) > 249
                code = KafkaError.TOPIC_EXCEPTION if impossible else KafkaError.UNKNOWN_TOPIC_OR_PART
                future.set_exception(KafkaException(KafkaError(code)))
        return found

    def describe_configs(self, resources: list[ConfigResource], request_timeout: float) -> dict[Any, Future[Any]]:
        future = Future[Any]()
        if isinstance(self._settings, KafkaError):
            future.set_exception(KafkaException(self._settings))
        else:
            future.set_result({name: SimpleNamespace(value=value) for name, value in self._settings.items()})
        return dict.fromkeys(resources, future)


def test_a_pattern_never_matches_what_winnow_creates() -> None:
    """If a pattern matched a placeholder, each look would create another placeholder for that."""
    own = ("raw.winnow-offsets", "raw.winnow-offsets.winnow-offsets", "at-raw", "dead.replayed", "dead.parked")
    strangers = ("raw", "dead", ".winnow-offsets", "at-", "other.parked")
    topics = KafkaTopics(TopicsConnection(*own, *strangers), OwnTopics("dead", "at-{topic}"))

    assert set(strangers) == topics.source_topics([], ".*").keys()
    assert {"at-raw"} == topics.source_topics(["at-raw"], None).keys()


@pytest.mark.parametrize("template", ["", "{topic}"])
def test_a_placeholder_of_its_sources_name_hides_nothing(template: str) -> None:
    """If a placeholder has its source's own name, the pattern means the source."""
    topics = KafkaTopics(TopicsConnection("raw", "raw.winnow-offsets"), OwnTopics("dead", template))

    assert {"raw"} == topics.source_topics([], ".*").keys()


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "604800000"}, 604_800.0),
        ({"cleanup.policy": "compact,delete", "retention.ms": "1000"}, 1.0),
        ({"cleanup.policy": "compact", "retention.ms": "1000"}, None),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, None),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), None),  # we may not read it
    ],
)
def test_a_retention_is_that_of_a_topic_that_deletes(settings: Any, seconds: float | None) -> None:
    """A topic that only compacts, or keeps records for ever, endangers none."""
    assert seconds == KafkaTopics(TopicsConnection("raw", settings=settings)).retention("raw")


@pytest.mark.parametrize(
    ("settings", "policy"),
    [({"cleanup.policy": "delete"}, "delete"), (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "")],
)
def test_what_deletes_records(settings: Any, policy: str) -> None:
    """It is unknown if we may not read it."""
    assert policy == KafkaTopics(TopicsConnection("raw", settings=settings)).cleanup_policy("raw")


def test_topics_that_do_not_exist() -> None:
    """All of them are named, each with the command that creates it. One that existed before may be missing."""
    topics = KafkaTopics(TopicsConnection("raw"))

    with pytest.raises(TopicMissing) as raised:
        topics.source_topics(["raw", "more", "most"], None)

    assert [
        f"topic {name!r} does not exist: kafka-topics --bootstrap-server BROKERS --create --topic {name} --partitions 8; "
        "or correct the configuration"
        for name in ("more", "most")
    ] == str(raised.value).splitlines()
    assert ["raw"] == list(topics.source_topics(["raw", "more"], None, ["more"]))


def test_a_topic_without_an_id() -> None:
    """Until all brokers work as Kafka 2.8, librdkafka gives zeros. Taken for an id, they end the day topics get theirs."""
    topics = KafkaTopics(TopicsConnection("raw", topic_id=Uuid(0, 0)))

    assert "" == topics.source_topics(["raw"], None)["raw"].id


def test_a_name_that_no_topic_can_have_is_that_of_no_topic() -> None:
    """The source of such a placeholder cannot be read; that must not end a service that reads others."""
    assert ["raw"] == list(KafkaTopics(TopicsConnection("raw")).facts(["raw", "raw".ljust(250, "x")]))


def test_a_pattern_never_matches_an_internal_topic() -> None:
    """`.*` does not read the group's own offsets, which would grow with every commit. A name may."""
    topics = KafkaTopics(TopicsConnection("raw", "_raw", "__consumer_offsets", "__transaction_state"))

    assert {"raw", "_raw"} == topics.source_topics([], ".*").keys()
    assert {"__consumer_offsets"} == topics.source_topics(["__consumer_offsets"], None).keys()


def test_a_pattern_leaves_out_what_may_not_be_read() -> None:
    """Such a topic may belong to others. One with that name is meant, so that a refusal says which right it lacks."""
    topics = KafkaTopics(TopicsConnection("raw", "theirs", unreadable="theirs"))

    assert {"raw"} == topics.source_topics([], ".*").keys()
    assert ["raw", "theirs"] == topics.matching(".*")
    assert {"theirs"} == topics.source_topics(["theirs"], None).keys()


def destination(settings: Mapping[str, str] | KafkaError) -> Destination:
    """Return the destination for a topic with this configuration."""
    return KafkaTopics(TopicsConnection("clean", settings=settings)).destination("clean")


NEVER = str((1 << 63) - 1)
SPLIT = {"message.timestamp.before.max.ms": NEVER, "message.timestamp.after.max.ms": "3600000"}
OLD = {"message.timestamp.difference.max.ms": "5000"}
HOUR_AFTER = TimestampLimit("message.timestamp.after.max.ms", 3_600_000)
DIFFERENCE = TimestampLimit("message.timestamp.difference.max.ms", 5_000)


@pytest.mark.parametrize(
    ("settings", "before", "after"),
    [
        ({}, None, None),
        (SPLIT, None, HOUR_AFTER),
        (SPLIT | {"message.timestamp.type": "CreateTime"}, None, HOUR_AFTER),
        (SPLIT | {"message.timestamp.type": "LogAppendTime"}, None, None),
        (SPLIT | {"message.timestamp.before.max.ms": "7"}, ("message.timestamp.before.max.ms", 7), HOUR_AFTER),
        (OLD, DIFFERENCE, DIFFERENCE),
        (OLD | SPLIT, DIFFERENCE, HOUR_AFTER),
        ({"message.timestamp.difference.max.ms": NEVER}, None, None),
    ],
)
def test_which_timestamps_a_topic_takes(
    settings: Mapping[str, str], before: TimestampLimit | None, after: TimestampLimit | None
) -> None:
    """Kafka 4 has a setting for each side, Kafka before 3.6 one for both, and 3.6 to 3.9 have all three."""
    known = destination(settings)

    assert (before, after) == (known.before, known.after)


@pytest.mark.parametrize(
    ("policy", "compacted"), [("delete", False), ("compact", True), ("compact,delete", True), ("", False)]
)
def test_a_compacted_topic_takes_only_records_with_a_key(policy: str, compacted: bool) -> None:
    """Whatever else its policy includes."""
    assert compacted == destination({"cleanup.policy": policy}).compacted


def test_what_is_known_of_a_topic() -> None:
    """The number of its partitions, its limit, and the broker's codec."""
    known = destination({"max.message.bytes": "77", "compression.type": "uncompressed"})

    assert Destination("clean", 1, 77, "uncompressed") == known


def test_a_topic_whose_configuration_may_not_be_read_is_taken_as_usual() -> None:
    """Its limit is the broker's default. Anything else it refuses is found out when it does."""
    known = destination(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    assert Destination("clean", 1, USUAL_MAX_BYTES, known=False) == known


BY_TIME = {"cleanup.policy": "delete", "retention.bytes": "-1"}


@pytest.mark.parametrize(
    ("settings", "retention"),
    [
        (BY_TIME | {"retention.ms": "5"}, 5),
        (BY_TIME | {"retention.ms": "0"}, 0),
        (BY_TIME | {"retention.ms": "-1"}, None),
        (BY_TIME, None),
        (BY_TIME | {"retention.ms": "5", "retention.bytes": "100"}, None),
        (BY_TIME | {"retention.ms": "5", "cleanup.policy": "compact,delete"}, None),
    ],
)
def test_how_long_records_are_kept(settings: Mapping[str, str], retention: int | None) -> None:
    """Known only if time alone decides."""
    assert retention == destination(settings).retention


@pytest.mark.parametrize(
    ("settings", "needed"),
    [({"min.insync.replicas": "3"}, 3), ({}, 1), (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), 1)],
)
def test_how_many_replicas_must_be_in_sync(settings: Any, needed: int) -> None:
    """A partition with fewer is known. If the setting may not be read, one is assumed."""
    topics = KafkaTopics(TopicsConnection("clean", settings=settings))

    assert needed == topics.min_in_sync("clean")
    assert {(0, 2)} == topics.source_topics(["clean"], None)["clean"].behind
