"""What the driver asks a cluster about its brokers, and about our group, which must have no other members."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from logging.handlers import BufferingHandler
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    ClusterMetadata,
    ConsumerGroupDescription,
    OffsetSpec,
)

from app.cures import SHOW_OFFSETS
from app.errors import ForeignMember, Unreachable
from app.facts import BrokerFacts, TopicFacts
from app.kafka import settings
from app.kafka.admin import ANSWER_SECONDS, COORDINATOR_SECONDS, AdminConnection, rights_of
from app.kafka.failures import error_of, is_refusal
from app.kafka.topics import KafkaTopics

OFFSETS_TOPIC = "__consumer_offsets"
# librdkafka reports the request versions that a broker supports only in its log.
_REQUEST = re.compile(r"(?P<broker>\S+):\s+ApiKey (?P<name>\w+) \(\d+\) Versions \d+\.\.(?P<newest>\d+)")
_AFTER_ALL_REQUESTS = re.compile(r"(?P<broker>\S+):\s+Feature ")
_LOG_SECONDS = 0.2
MOST_LINES = 1 << 20


class KafkaCluster:
    """What a preflight asks: the brokers' features, our rights, and the cluster's clock."""

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self.tools = connection.tools

    def id(self) -> str:
        return self._metadata().cluster_id or ""

    def size(self) -> int:
        return len(self._metadata().brokers)

    def brokers(self) -> BrokerFacts:
        told = self._connection.broker_settings()  # first: it is the quickest to notice that Kafka denies access
        log = logging.Logger("winnow.librdkafka.features", logging.DEBUG)  # noqa: LOG001  # must not reach any handler
        log.addHandler(kept := BufferingHandler(MOST_LINES))
        configured: dict[str, Any] = settings.common(self._connection.kafka) | {"debug": "feature", "log_level": 7}
        with self._connection.explaining("asking for the brokers' versions"):
            client = AdminClient(configured, logger=log)
            client.list_topics(OFFSETS_TOPIC, ANSWER_SECONDS)
        client.poll(_LOG_SECONDS)
        client.poll(0)
        return BrokerFacts(versions([record.getMessage() for record in kept.buffer]), told)

    def topics(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        return KafkaTopics(self._connection).facts(names)

    def group_rights(self, group: str) -> frozenset[str] | None:
        try:
            found = _describe(self._connection, group, rights=True)
        except KafkaException as error:
            if error_of(error).code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                return frozenset()
            raise self._connection.failure(error, f"describing group {group!r}") from error
        return None if found is None else rights_of(found.authorized_operations)

    def newest_commit(self) -> float | None:
        known = self._metadata().topics[OFFSETS_TOPIC]
        if known.error is not None:
            return None
        spec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
        asked = self._connection.client.list_offsets(
            {TopicPartition(OFFSETS_TOPIC, number): spec for number in known.partitions}, request_timeout=ANSWER_SECONDS
        )
        times = []
        for future in asked.values():
            try:
                times.append(self._connection.wait(future).timestamp)
            except KafkaException as error:
                if is_refusal(error_of(error)):
                    return None
        return max((each / 1000 for each in times if each > 0), default=None)

    def _metadata(self) -> ClusterMetadata:
        with self._connection.explaining(f"describing topic {OFFSETS_TOPIC!r}"):
            return self._connection.client.list_topics(OFFSETS_TOPIC, ANSWER_SECONDS)


class KafkaGroup:
    """
    The consumer group that the service commits to and never joins.

    `connections` are the clusters it commits to; the last one has the authoritative offsets.
    """

    def __init__(self, connections: Sequence[AdminConnection], group: str) -> None:
        self._connections = connections
        self._group = group

    def refuse_foreign_members(self) -> None:
        """
        Require that nothing else consumes in our group: the broker would accept both commits, and records would be
        skipped. A cluster that has only a copy of the offsets need not answer.
        """
        for connection in self._connections:
            try:
                with connection.explaining(f"describing group {self._group!r}"):
                    found = _describe(connection, self._group)
            except Unreachable:
                if connection is self._connections[-1]:
                    raise
                continue
            if found is not None and found.members:
                who = ", ".join(f"{member.client_id} on {member.host}" for member in found.members)
                msg = f"group {self._group!r} has members other than Winnow ({who})"
                moved = f"set back the offsets that they committed, which have no counts in {SHOW_OFFSETS}"
                raise ForeignMember(msg, f"stop them and {moved}; or choose another group.id")

    def offset_retention(self) -> float | None:
        minutes = (self._connections[-1].broker_settings() or {}).get("offsets.retention.minutes")
        return None if minutes is None else float(minutes) * 60


def _describe(connection: AdminConnection, group: str, *, rights: bool = False) -> ConsumerGroupDescription | None:
    """Return the description of a group, optionally with our rights; None if there is no such group."""
    asked = connection.client.describe_consumer_groups(
        [group], include_authorized_operations=rights, request_timeout=COORDINATOR_SECONDS
    )
    try:
        found: ConsumerGroupDescription = connection.wait(asked[group], ANSWER_SECONDS)
    except KafkaException as error:
        if error_of(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise
    return found


def versions(said: Collection[str]) -> dict[str, int]:
    """
    Return the newest version of each request that all brokers support, from librdkafka's feature log.

    A broker whose list the log has only in part (it connected a moment ago) does not count.
    """
    newest: defaultdict[str, dict[str, int]] = defaultdict(dict)
    complete: list[dict[str, int]] = []
    for line in said:
        if found := _REQUEST.search(line):
            newest[found["broker"]][found["name"]] = int(found["newest"])
        elif found := _AFTER_ALL_REQUESTS.search(line):
            complete.append(newest[found["broker"]])
    everywhere = set.intersection(*map(set, complete)) if complete else set()
    return {name: min(each[name] for each in complete) for name in sorted(everywhere)}
