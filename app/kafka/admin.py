"""The driver's connection to Kafka's admin API: it waits for answers and explains failures."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from app.cures import KafkaTools
from app.errors import NotAllowed, NotUsable, Unreachable
from app.kafka import settings
from app.kafka.failures import (
    MISCONFIGURED,
    called,
    decisive,
    error_of,
    explaining,
    is_refusal,
    of_cluster,
    section_of,
    tells_too_little,
    timed_out,
)
from app.kafka.handshake import Objection, objection
from app.model import Partition

T = TypeVar("T")
ANSWER_SECONDS = 5.0
# After one broker has denied access, how long to wait for the others.
REFUSED_SECONDS = 2.0
# A request to a coordinator must not reach librdkafka's own timeout. If it does before the coordinator is found, and it
# is found later, the process aborts (librdkafka 2.16, issue 4605). So the caller gives up first.
COORDINATOR_SECONDS = 3_600.0
UNREADABLE = frozenset({KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED})
"""How a broker refuses to show its configuration or a topic's."""


def ask_offsets(
    client: AdminClient,
    partitions: Iterable[Partition],
    spec: OffsetSpec,
    isolation: IsolationLevel,
    *,
    wait: Callable[[Future[Any]], Any],
    seconds: float,
) -> tuple[dict[Partition, int], dict[Partition, KafkaException]]:
    """
    Return an offset of each partition whose leader responds within `seconds`, and the errors of the others.

    One broken broker must not hide the others' partitions. `wait` waits for an answer.
    """
    found: dict[Partition, int] = {}
    failed: dict[Partition, KafkaException] = {}
    wanted = {TopicPartition(*partition): spec for partition in partitions}
    for at, future in client.list_offsets(wanted, isolation_level=isolation, request_timeout=seconds).items():
        partition = Partition(at.topic, at.partition)
        try:
            offset = wait(future).offset
        except TimeoutError:
            offset = OFFSET_INVALID
        except KafkaException as error:
            # Its frames would keep this dict, and so themselves and the client, while a task collects no garbage.
            failed[partition] = error.with_traceback(None)
            continue
        if offset == OFFSET_INVALID:  # librdkafka 2.16 returns it instead of an error if the leader did not respond
            failed[partition] = timed_out()
        else:
            found[partition] = offset
    return found, failed


def rights_of(operations: Iterable[Any] | None) -> frozenset[str] | None:
    """Return our rights in the names of `kafka-acls`, such as DescribeConfigs; None if the broker does not tell."""
    return None if operations is None else frozenset(each.name.title().replace("_", "") for each in operations)


class AdminConnection:
    """
    An admin client that is replaced after each failure: one whose only broker was killed may never respond again.

    Requests time out after ANSWER_SECONDS. Requests to a coordinator do not, so limit the wait for them.
    """

    client: AdminClient

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self.kafka = kafka
        self.tools = KafkaTools.of(kafka)
        """Kafka's command-line tools for this cluster, for cures."""
        self._connect()

    def _connect(self) -> None:
        own: dict[str, Any] = {"error_cb": self._remember_error, "socket.connection.setup.timeout.ms": 5000}
        with explaining(self.kafka):
            self.client = AdminClient(settings.common(self.kafka) | own, logger=settings.SILENT)
        self._last_error: KafkaError | None = None
        self._objection: Objection | None = None

    def _remember_error(self, error: KafkaError) -> None:
        # "All brokers are down" follows the error that gives the reason. A refusal outranks an unavailable broker.
        said = self._last_error
        if said is None or is_refusal(error) or not (is_refusal(said) or error.code() == KafkaError._ALL_BROKERS_DOWN):  # noqa: SLF001
            self._last_error = error

    def _probe(self, error: KafkaError) -> Objection | None:
        """Probe the listener if an error leaves the cause open; return what prevents the connection, if it is known."""
        if self._objection is None and tells_too_little(error):
            self._objection = objection(settings.common(self.kafka), section_of(self.kafka))
        return self._objection

    def wait(self, future: Future[T], seconds: float = 2 * ANSWER_SECONDS) -> T:
        """Wait for an answer for `seconds`, above REFUSED_SECONDS; raises KafkaException, also if there is none."""
        with contextlib.suppress(TimeoutError):
            return future.result(REFUSED_SECONDS)
        self.client.poll(0)
        said = self._last_error
        if said is not None and (is_refusal(said) or self._probe(said)):
            raise KafkaException(said)
        try:
            return future.result(seconds - REFUSED_SECONDS)
        except TimeoutError as error:
            raise timed_out() from error

    def broker_settings(self) -> dict[str, str] | None:
        """Return the configuration of a broker; None if reading it is not allowed."""
        with self.explaining("describing the cluster"):
            cluster = self.wait(self.client.describe_cluster(request_timeout=ANSWER_SECONDS))
        node = min(each.id for each in cluster.nodes)
        return self.configuration(ResourceType.BROKER, str(node), f"broker {node}")

    def configuration(self, kind: ResourceType, name: str, called: str) -> dict[str, str] | None:
        """Return the configuration of a broker or a topic; None if reading it is not allowed."""
        resource = ConfigResource(kind, name)
        described = self.client.describe_configs([resource], request_timeout=ANSWER_SECONDS)
        try:
            return {key: entry.value for key, entry in self.wait(described[resource]).items()}
        except KafkaException as error:
            if error_of(error).code() in UNREADABLE:
                return None
            raise self.failure(error, f"reading the configuration of {called}") from error

    @contextlib.contextmanager
    def explaining(self, doing: str) -> Iterator[None]:
        """Translate Kafka's errors; `doing` describes the request in them."""
        try:
            yield
        except KafkaException as error:
            raise self.failure(error, doing) from error

    def failure(
        self, error: KafkaError | KafkaException, doing: str, rejections: Collection[int] = MISCONFIGURED
    ) -> NotUsable | Unreachable:
        """Return what an error means, as `of_cluster`; reconnect if Kafka did not respond or denied access."""
        self.client.poll(0)
        error = decisive(error, self._last_error)
        failure = of_cluster(error, doing, self.kafka, rejections)
        if isinstance(failure, NotAllowed | Unreachable):
            if found := self._probe(error):
                kind = Unreachable if found.passes else NotAllowed
                failure = kind(f"{called(self.kafka)} cannot be reached while {doing}: {found.cause}", found.cure)
            retired = [self.client]
            self._connect()
            # A client that waits for a token server ends only after that request, 20 s later (librdkafka 2.16).
            threading.Thread(target=retired.clear, daemon=True).start()
        return failure
