"""Empty topics on the sink's cluster that stand for source topics of another one: brokers keep offsets by topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewPartitions, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from app.errors import NotUsable
from app.kafka.admin import ANSWER_SECONDS, AdminConnection
from app.kafka.companions import BROKERS_DEFAULT, KafkaCompanions
from app.kafka.failures import error_of
from app.model import Partition


class KafkaPlaceholders:
    """
    Creates placeholders for the offsets of source topics on the sink's cluster.

    A broker refuses an offset for a topic or partition that it does not have. Nothing is written to these topics.

    `template` is the name of a placeholder, with `{topic}` in it.
    """

    def __init__(self, connection: AdminConnection, template: str) -> None:
        self._connection = connection
        self._companions = KafkaCompanions(connection)
        self._template = template

    def make_room(self, partitions: Iterable[Partition]) -> None:
        """
        Create missing placeholders, and grow those with fewer partitions than their source topic.

        Raises:
            Unreachable: the sink's cluster does not respond.
            NotUsable: the cluster refuses; the error says how an operator can create the topic.
        """
        for name, wanted in self.lacking(partitions).items():
            existing = self._companions.partitions_of(name)
            self._ask_for(name, wanted, grow=existing > 0)

    def lacking(self, partitions: Iterable[Partition]) -> Mapping[str, int]:
        """Return the missing or too small placeholders, with the number of partitions that each needs."""
        wanted: dict[str, int] = {}
        for topic, number in partitions:
            name = self._template.format(topic=topic)
            wanted[name] = max(wanted.get(name, 0), number + 1)
        return {name: count for name, count in wanted.items() if self._companions.partitions_of(name) < count}

    def _ask_for(self, name: str, partitions: int, *, grow: bool) -> None:
        client = self._connection.client
        if grow:
            asked = client.create_partitions([NewPartitions(name, partitions)], request_timeout=ANSWER_SECONDS)
        else:
            new = NewTopic(name, partitions, BROKERS_DEFAULT)
            asked = client.create_topics([new], request_timeout=ANSWER_SECONDS)
        try:
            self._connection.wait(asked[name])
        except KafkaException as error:
            if error_of(error).code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            failure = self._connection.failure(error, f"preparing placeholder topic {name!r}")
            if isinstance(failure, NotUsable):
                tools = self._connection.tools
                command = tools.grow_topic(name, partitions) if grow else tools.create_topic(name, partitions, {})
                raise type(failure)(failure.cause, f"{command}; or grant Winnow the right to do it") from error
            raise failure from error
