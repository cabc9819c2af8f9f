"""Topics that Winnow creates in addition to the user's: for replays of dead letters, and for offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.errors import NotUsable, Unreachable
from app.kafka.admin import ANSWER_SECONDS, AdminConnection
from app.kafka.failures import CURES, MISCONFIGURED, TOPIC_REFUSED, error_of, is_about
from app.kafka.topics import KafkaTopics
from app.model import Partition, numbers_by_topic

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
        self.provide(name, partitions, settings, doing=f"creating topic {name!r}", cure="create it: {}")
        deadline = time.monotonic() + LEADER_SECONDS
        while time.monotonic() < deadline:
            topic = self._topics.source_topics([name], None, {name}).get(name)
            if topic is not None and not topic.leaderless:  # not all brokers know it at once
                return topic.partitions
            time.sleep(0.05)
        raise Unreachable(f"topic {name!r} has no leaders after {LEADER_SECONDS:.0f} s", "try again")

    def provide(
        self, name: str, partitions: int, settings: Mapping[str, str], *, grow: bool = False, doing: str, cure: str
    ) -> None:
        """Create or `grow` a topic, unless another process has; `cure` gets the command that does it instead of {}."""
        client, tools = self._connection.client, self._connection.tools
        if grow:
            asked = client.create_partitions([NewPartitions(name, partitions)], request_timeout=ANSWER_SECONDS)
            command = tools.grow_topic(name, partitions)
        else:
            new = NewTopic(name, partitions, BROKERS_DEFAULT, config=dict(settings))
            asked = client.create_topics([new], request_timeout=ANSWER_SECONDS)
            command = tools.create_topic(name, partitions, settings)
        try:
            self._connection.wait(asked[name])
        except KafkaException as error:
            if (code := error_of(error).code()) in ALREADY_THERE:
                return
            failure = self._connection.failure(error, doing, MISCONFIGURED | TOPIC_REFUSED)
            if isinstance(failure, NotUsable):
                failure.cure = CURES.get(code, cure.format(command))
            raise failure from error


class KafkaPlaceholders:
    """
    Creates empty topics on the sink's cluster that stand for source topics of another one.

    Brokers keep offsets by topic, and refuse one for a topic or partition that they do not have. Nothing is written to
    these topics.

    `template` is the name of a placeholder, with `{topic}` in it.
    """

    def __init__(self, connection: AdminConnection, template: str) -> None:
        self._companions = KafkaCompanions(connection)
        self._template = template

    def make_room(self, partitions: Iterable[Partition]) -> Mapping[Partition, NotUsable]:
        """Create missing placeholders, and grow those with fewer partitions than their source topic."""
        partitions, refused = list(partitions), dict[Partition, NotUsable]()
        doing, cure = "preparing placeholder topic {!r}", "{}; or grant Winnow the right to do it"
        for name, wanted in self.lacking(partitions).items():
            there = self._companions.partitions_of(name)
            try:
                self._companions.provide(name, wanted, {}, grow=there > 0, doing=doing.format(name), cure=cure)
            except NotUsable as error:
                if not is_about(error, TOPIC_REFUSED):  # a denied login, for example, is not about this topic
                    raise
                without = (each for each in partitions if self._name(each.topic) == name and each.number >= there)
                refused |= dict.fromkeys(without, error)
        return refused

    def lacking(self, partitions: Iterable[Partition]) -> Mapping[str, int]:
        wanted = {self._name(topic): max(numbers) + 1 for topic, numbers in numbers_by_topic(partitions).items()}
        return {name: count for name, count in wanted.items() if self._companions.partitions_of(name) < count}

    def _name(self, source: str) -> str:
        return self._template.format(topic=source)
