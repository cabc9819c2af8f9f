"""What the driver asks Kafka about its consumer group, which must have no other members."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException

from app.errors import ForeignMember
from app.kafka.admin import ANSWER_SECONDS, COORDINATOR_SECONDS, AdminConnection
from app.kafka.failures import error_of


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
        skipped.

        Raises:
            ForeignMember: something does; the error names it.
            Unreachable, NotUsable: Kafka does not respond, or refuses.
        """
        for connection in self._connections:
            self._refuse_foreign_members(connection)

    def offset_retention(self) -> float | None:
        """
        Return how many seconds brokers keep an offset after its last commit; None if reading that is not allowed.

        Raises:
            Unreachable, NotUsable: Kafka does not respond, or refuses.
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
