"""Topics that Winnow creates in addition to the user's, such as those for replays of dead letters."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.errors import NotUsable, TopicMissing, Unreachable
from app.kafka.admin import ANSWER_SECONDS, AdminConnection
from app.kafka.failures import error_of
from app.kafka.topics import KafkaTopics

BROKERS_DEFAULT = -1
"""The replication factor is the brokers' default."""
LEADER_SECONDS = 15.0


class KafkaCompanions:
    """Finds such topics on one cluster, and creates missing ones."""

    def __init__(self, connection: AdminConnection) -> None:
        self._connection = connection
        self._topics = KafkaTopics(connection)

    def partitions_of(self, name: str) -> int:
        """Return how many partitions a topic has; 0 if it does not exist."""
        try:
            return self._topics.source_topics([name], None)[name].partitions
        except TopicMissing:
            return 0

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """
        Create a topic, unless it exists, and wait until its partitions have leaders.

        Raises:
            Unreachable: Kafka does not respond.
            NotUsable: Kafka refuses; the error says how an operator can create the topic.
        """
        if self.partitions_of(name):
            return
        new = NewTopic(name, partitions, BROKERS_DEFAULT, config=dict(settings))
        asked = self._connection.client.create_topics([new], request_timeout=ANSWER_SECONDS)
        try:
            self._connection.wait(asked[name])
        except KafkaException as error:
            if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                failure = self._connection.failure(error, f"creating topic {name!r}")
                if isinstance(failure, NotUsable):
                    cure = f"create it: {self._connection.tools.create_topic(name, partitions, settings)}"
                    raise type(failure)(failure.cause, cure) from error
                raise failure from error
        self._wait_for_leaders(name)

    def _wait_for_leaders(self, name: str) -> None:
        deadline = time.monotonic() + LEADER_SECONDS
        while time.monotonic() < deadline:
            try:
                if not self._topics.source_topics([name], None)[name].leaderless:
                    return
            except TopicMissing:  # not all brokers know it yet
                pass
            time.sleep(0.05)
        raise Unreachable(f"topic {name!r} has no leaders after {LEADER_SECONDS:.0f} s", "try again")
