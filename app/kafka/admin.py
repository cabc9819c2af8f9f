"""The driver's connection to Kafka's admin API: asks, waits for the answer, and says what a failure means."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from app.errors import NotAllowed, NotUsable, Unreachable
from app.kafka import settings
from app.kafka.failures import KAFKA, is_refusal, of_cluster

T = TypeVar("T")
ANSWER_SECONDS = 5.0
# A broker that refuses us may be the only one that does; the others have so long to answer.
REFUSED_SECONDS = 2.0
# A request to a coordinator must never reach librdkafka's own timeout. If it does before the coordinator was found, and
# the coordinator is found later, the process aborts (librdkafka 2.16, issue 4605). So we give up first.
COORDINATOR_SECONDS = 3_600.0


def known_offset(offset: int) -> int:
    """
    Return an offset that `list_offsets` has answered with.

    Raises:
        KafkaException: the leader did not answer; librdkafka 2.16 returns OFFSET_INVALID for that, and no error.
    """
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
    return offset


class AdminConnection:
    """
    An admin client that is replaced after each failure: one whose only broker was killed may never answer again.

    A request has a timeout of ANSWER_SECONDS; one to a coordinator has not, so whoever waits for it gives up then.
    """

    client: AdminClient

    def __init__(self, kafka: Mapping[str, str], cluster: str = KAFKA) -> None:
        self._kafka = kafka
        self._cluster = cluster
        self._connect()

    def _connect(self) -> None:
        own: dict[str, Any] = {"error_cb": self._remember_error, "socket.connection.setup.timeout.ms": 5000}
        self._last_error: KafkaError | None = None
        self.client = AdminClient(settings.common(self._kafka) | own, logger=settings.SILENT)

    def _remember_error(self, error: KafkaError) -> None:
        # "All brokers are down" follows the error that says why. A refusal says more than a broker that is down.
        refused = self._last_error is not None and is_refusal(self._last_error)
        if error.code() != KafkaError._ALL_BROKERS_DOWN and (is_refusal(error) or not refused):  # noqa: SLF001
            self._last_error = error

    def wait(self, future: Future[T], seconds: float = 2 * ANSWER_SECONDS) -> T:
        """
        Wait for an answer; after so many seconds, which are more than REFUSED_SECONDS, give up.

        Raises:
            KafkaException: as Kafka answered, or because it did not.
        """
        with contextlib.suppress(TimeoutError):
            return future.result(REFUSED_SECONDS)
        self.client.poll(0)
        if self._last_error is not None and is_refusal(self._last_error):
            raise KafkaException(self._last_error)
        try:
            return future.result(seconds - REFUSED_SECONDS)
        except TimeoutError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error  # noqa: SLF001

    def answer(self, future: Future[T], doing: str) -> T:
        """
        Wait for an answer; `doing` says in the error what was asked.

        Raises:
            Unreachable: Kafka does not answer.
            NotUsable: it refuses, and a person must act.
        """
        try:
            return self.wait(future)
        except KafkaException as error:
            raise self.failure(error, doing) from error

    def failure(self, error: KafkaError | KafkaException, doing: str) -> NotUsable | Unreachable:
        """Return what an error means for the service, and connect again if Kafka did not answer or refused us."""
        self.client.poll(0)
        failure = of_cluster(error, doing, self._last_error, self._cluster)
        if isinstance(failure, NotAllowed | Unreachable):
            self._connect()
        return failure
