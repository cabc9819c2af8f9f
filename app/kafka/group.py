"""What the driver asks Kafka about its consumer group: nobody else may be a member of it."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from app.errors import ForeignMember
from app.kafka.admin import ANSWER_SECONDS, COORDINATOR_SECONDS, AdminConnection
from app.kafka.failures import error_of


class KafkaGroup:
    """
    The consumer group that the service commits to and never joins.

    Args:
        connections: the clusters on which it commits; the last one has the offsets that count.
        group: the name of the group.
    """

    def __init__(self, connections: Sequence[AdminConnection], group: str) -> None:
        self._connections = connections
        self._group = group

    def refuse_foreign_members(self) -> None:
        """
        Make sure that nobody consumes in our group: the broker would let both commit, and records would be skipped.

        Raises:
            ForeignMember: somebody does; the error names who.
            Unreachable, NotUsable: Kafka does not answer, or refuses.
        """
        for connection in self._connections:
            self._refuse_foreign_members(connection)

    def offset_retention(self) -> float | None:
        """
        Return for how many seconds brokers keep an offset that nobody commits again; None where we may not ask.

        Raises:
            Unreachable, NotUsable: Kafka does not answer, or refuses.
        """
        minutes = self._connections[-1].broker_setting("offsets.retention.minutes")
        return None if minutes is None else float(minutes) * 60

    def _refuse_foreign_members(self, connection: AdminConnection) -> None:
        asked = connection.client.describe_consumer_groups([self._group], request_timeout=COORDINATOR_SECONDS)
        try:
            members = connection.wait(asked[self._group], ANSWER_SECONDS).members
        except KafkaException as error:
            if error_of(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
                return
            raise connection.failure(error, f"describing group {self._group!r}") from error
        if members:
            who = ", ".join(f"{member.client_id} on {member.host}" for member in members)
            msg = f"group {self._group!r} has members other than Winnow ({who})"
            raise ForeignMember(msg, "stop them, or choose another group.id")
