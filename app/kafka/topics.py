"""What the driver asks Kafka about topics: which exist, their size, and where their partitions end."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from app.errors import TopicMissing, Unreachable
from app.facts import TopicFacts
from app.kafka.admin import ANSWER_SECONDS, AdminConnection, ask_offsets, rights_of
from app.kafka.failures import error_of, is_refusal
from app.model import Destination, Partition, TimestampLimit, Topic, Watermarks, topic_id_of
from app.topics import OwnTopics

# The broker's default for max.message.bytes, if reading the topic's configuration is not allowed.
USUAL_MAX_BYTES = 1_048_588
# A placeholder's name, which is longer than its source's, may be one that no topic can have.
NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})


class KafkaTopics:
    """
    Answers the driver's questions about topics.

    No pattern matches Kafka's own topics, or `own`, those that Winnow creates.
    """

    def __init__(self, connection: AdminConnection, own: OwnTopics = OwnTopics()) -> None:  # noqa: B008  # it is frozen
        self._connection = connection
        self._own = own

    def source_topics(
        self, names: Collection[str], pattern: str | None, known: Collection[str] = frozenset()
    ) -> dict[str, Topic]:
        """
        Return the source topics, by name or by a pattern.

        Args:
            names: topics that must exist, unless they are known.
            pattern: as in `matching`; what we may not read may belong to others, and is left out.
            known: topics that have existed; those that are gone are left out.
        """
        if pattern is not None:
            known = names = self.matching(pattern)
        if not names:
            return {}
        asked = self._connection.client.describe_topics(
            TopicCollection(list(names)),
            include_authorized_operations=pattern is not None,
            request_timeout=ANSWER_SECONDS,
        )
        found: dict[str, Topic] = {}
        missing: list[TopicMissing] = []
        for name, future in asked.items():
            try:
                described = self._connection.wait(future)
            except KafkaException as error:
                if error_of(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise self._connection.failure(error, f"describing topic {name!r}") from error
                if name not in known:
                    missing.append(TopicMissing.named(name, self._connection.tools))
            else:
                rights = None if pattern is None else rights_of(described.authorized_operations)
                if rights is None or "Read" in rights:
                    found[name] = _topic(name, described)
        if missing:
            raise missing[0] if len(missing) == 1 else TopicMissing("\n".join(map(str, missing)))
        return found

    def matching(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches."""
        with self._connection.explaining("listing topics"):
            listed = sorted(self._connection.client.list_topics(timeout=ANSWER_SECONDS).topics)
        meant = (name for name in listed if not name.startswith("__") and name not in self._own)
        return [name for name in meant if re.fullmatch(pattern, name)]

    def destination(self, name: str) -> Destination:
        topic = self.source_topics([name], None)[name]
        settings = self._settings(name)
        append_time = settings.get("message.timestamp.type") == "LogAppendTime"
        before, after = (None if append_time else TimestampLimit.of(settings, side) for side in ("before", "after"))
        return Destination(
            name,
            topic.partitions,
            max_bytes=int(settings.get("max.message.bytes", USUAL_MAX_BYTES)),
            compression=settings.get("compression.type", "producer"),
            compacted="compact" in settings.get("cleanup.policy", ""),
            before=before,
            after=after,
            append_time=append_time,
            retention=_retention(settings),
            known=bool(settings),
        )

    def facts(self, names: Collection[str]) -> dict[str, TopicFacts]:
        asked = self._connection.client.describe_topics(
            TopicCollection(list(names)), include_authorized_operations=True, request_timeout=ANSWER_SECONDS
        )
        found: dict[str, TopicFacts] = {}
        for name, future in asked.items():
            try:
                described = self._connection.wait(future)
            except KafkaException as error:
                if error_of(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    found[name] = TopicFacts(frozenset())
                elif error_of(error).code() not in NO_TOPIC:
                    raise self._connection.failure(error, f"describing topic {name!r}") from error
            else:
                replicas = min((len(each.replicas) for each in described.partitions), default=1)
                rights = rights_of(described.authorized_operations)
                found[name] = TopicFacts(rights, replicas, self._settings(name) or None, len(described.partitions))
        return found

    def retention(self, name: str) -> float | None:
        settings = self._settings(name)
        milliseconds = int(settings.get("retention.ms", -1))
        return milliseconds / 1000 if milliseconds >= 0 and "delete" in settings.get("cleanup.policy", "") else None

    def cleanup_policy(self, name: str) -> str:
        return self._settings(name).get("cleanup.policy", "")

    def min_in_sync(self, name: str) -> int:
        return int(self._settings(name).get("min.insync.replicas", 1))

    def _settings(self, name: str) -> dict[str, str]:
        """Return a topic's configuration; empty if we may not read it."""
        return self._connection.configuration(ResourceType.TOPIC, name, f"topic {name!r}") or {}

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, Watermarks]:
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        log_start = self._offsets(list(partitions), earliest, IsolationLevel.READ_UNCOMMITTED)
        last_stable = self._offsets(list(log_start), latest, IsolationLevel.READ_COMMITTED)
        high = self._offsets(list(last_stable), latest, IsolationLevel.READ_UNCOMMITTED)
        return {each: Watermarks(log_start[each], last_stable[each], high[each]) for each in high}

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int | None]:
        found = self._offsets(list(partitions), OffsetSpec.for_timestamp(milliseconds), IsolationLevel.READ_COMMITTED)
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def _offsets(
        self, partitions: list[Partition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[Partition, int]:
        """Return an offset of each partition that responds."""
        if not partitions:
            return {}
        found, failed = ask_offsets(
            self._connection.client, partitions, spec, isolation, wait=self._connection.wait, seconds=ANSWER_SECONDS
        )
        if failed:
            partition, worst = max(failed.items(), key=lambda each: is_refusal(error_of(each[1])))
            failure = self._connection.failure(worst, f"reading the offsets of {partition}")
            if not found or not isinstance(failure, Unreachable):
                raise failure from worst
        return found


def _topic(name: str, described: TopicDescription) -> Topic:
    leaderless = frozenset(each.id for each in described.partitions if each.leader is None or each.leader.id < 0)
    in_sync = {(each.id, len(each.isr)) for each in described.partitions if len(each.isr) < len(each.replicas)}
    return Topic(name, topic_id_of(str(described.topic_id)), len(described.partitions), leaderless, frozenset(in_sync))


def _retention(settings: Mapping[str, str]) -> int | None:
    milliseconds = int(settings.get("retention.ms", -1))
    by_time_alone = settings.get("cleanup.policy") == "delete" and settings.get("retention.bytes") == "-1"
    return milliseconds if by_time_alone and milliseconds >= 0 else None
