"""Topics that Winnow creates in addition to the user's: for replays of dead letters, and for offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.errors import NotUsable, Unreachable
from app.kafka.admin import ANSWER_SECONDS, AdminConnection
from app.kafka.failures import CURES, MISCONFIGURED, TOPIC_REFUSED, error_of, is_about
from app.kafka.topics import KafkaTopics
from app.model import Partition

BROKERS_DEFAULT = -1
"""The replication factor is the brokers' default."""
LEADER_SECONDS = 15.0
ALREADY_THERE = frozenset({KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS})
"""Another process was faster: the topic exists, or has at least as many partitions as it was to get."""


class KafkaCompanions:
    """Finds such topics on one cluster, and creates missing ones."""

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self._topics = KafkaTopics(connection)

    def partitions_of(self, name: str) -> int:
        """Return how many partitions a topic has; 0 if it does not exist."""
        try:
            found = self._topics.source_topics([name], None, {name}).get(name)
        except NotUsable as error:
            if is_about(error, {KafkaError.TOPIC_EXCEPTION}):  # no topic can have this name
                return 0
            raise
        return 0 if found is None else found.partitions

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> int:
        """Create a topic, unless it exists, and wait until its partitions have leaders; return how many it has."""
        if found := self.partitions_of(name):
            return found
        new = NewTopic(name, partitions, BROKERS_DEFAULT, config=dict(settings))
        asked = self._connection.client.create_topics([new], request_timeout=ANSWER_SECONDS)
        cure = f"create it: {self._connection.tools.create_topic(name, partitions, settings)}"
        _wait_for(self._connection, asked[name], f"creating topic {name!r}", cure)
        return self._wait_for_leaders(name)

    def _wait_for_leaders(self, name: str) -> int:
        deadline = time.monotonic() + LEADER_SECONDS
        while time.monotonic() < deadline:
            topic = self._topics.source_topics([name], None, {name}).get(name)
            if topic is not None and not topic.leaderless:  # not all brokers know it at once
                return topic.partitions
            time.sleep(0.05)
        raise Unreachable(f"topic {name!r} has no leaders after {LEADER_SECONDS:.0f} s", "try again")


class KafkaPlaceholders:
    """
    Creates empty topics on the sink's cluster that stand for source topics of another one.

    Brokers keep offsets by topic, and refuse one for a topic or partition that they do not have. Nothing is written to
    these topics.

    `template` is the name of a placeholder, with `{topic}` in it.
    """

    def __init__(self, connection: AdminConnection, template: str) -> None:
        self._connection = connection
        self._companions = KafkaCompanions(connection)
        self._template = template

    def make_room(self, partitions: Iterable[Partition]) -> Mapping[Partition, NotUsable]:
        """Create missing placeholders, and grow those with fewer partitions than their source topic."""
        partitions, refused = list(partitions), dict[Partition, NotUsable]()
        for name, wanted in self.lacking(partitions).items():
            there = self._companions.partitions_of(name)
            try:
                self._provide(name, wanted, grow=there > 0)
            except NotUsable as error:
                if not is_about(error, TOPIC_REFUSED):  # a denied login, for example, is not about this topic
                    raise
                without = (each for each in partitions if self._name(each) == name and each.number >= there)
                refused |= dict.fromkeys(without, error)
        return refused

    def lacking(self, partitions: Iterable[Partition]) -> Mapping[str, int]:
        wanted: dict[str, int] = {}
        for each in partitions:
            name = self._name(each)
            wanted[name] = max(wanted.get(name, 0), each.number + 1)
        return {name: count for name, count in wanted.items() if self._companions.partitions_of(name) < count}

    def _name(self, partition: Partition) -> str:
        return self._template.format(topic=partition.topic)

    def _provide(self, name: str, partitions: int, *, grow: bool) -> None:
        client, tools = self._connection.client, self._connection.tools
        if grow:
            asked = client.create_partitions([NewPartitions(name, partitions)], request_timeout=ANSWER_SECONDS)
            command = tools.grow_topic(name, partitions)
        else:
            new = NewTopic(name, partitions, BROKERS_DEFAULT)
            asked = client.create_topics([new], request_timeout=ANSWER_SECONDS)
            command = tools.create_topic(name, partitions, {})
        cure = f"{command}; or grant Winnow the right to do it"
        _wait_for(self._connection, asked[name], f"preparing placeholder topic {name!r}", cure)


def _wait_for(connection: AdminConnection, created: Future[None], doing: str, cure: str) -> None:
    """Wait until a topic is created, or exists; `cure` says what to do if Kafka refuses."""
    try:
        connection.wait(created)
    except KafkaException as error:
        if error_of(error).code() in ALREADY_THERE:
            return
        failure = connection.failure(error, doing, MISCONFIGURED | TOPIC_REFUSED)
        if isinstance(failure, NotUsable):
            raise type(failure)(failure.cause, CURES.get(error_of(error).code(), cure)) from error
        raise failure from error
