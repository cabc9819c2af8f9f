"""What the driver asks Kafka: topics, offsets, watermarks, group members. And the fence, its one means of control."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from app.errors import ForeignMember, NotUsable, TopicMissing, Unreachable
from app.kafka import settings
from app.kafka.failures import error_of, of_cluster
from app.kafka.writers import connect
from app.model import CommittedOffset, Destination, Partition

T = TypeVar("T")
ANSWER_SECONDS = 5.0
FENCE_SECONDS = 3.0
FENCES_AT_ONCE = 16
# The broker's default for max.message.bytes, for where we may not read the topic's configuration.
USUAL_MAX_BYTES = 1_048_588


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now; a recreated one has another id."""

    name: str
    id: str
    partitions: int


class KafkaAdmin:
    """The driver's view of Kafka. Every call raises Unreachable or NotUsable, and waits ANSWER_SECONDS at most."""

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._kafka = kafka
        self._group = group
        self._connect()

    def _connect(self) -> None:
        own: dict[str, Any] = {"error_cb": self._note_trouble, "socket.connection.setup.timeout.ms": 5000}
        self._trouble = ""
        self._client = AdminClient(settings.common(self._kafka) | own, logger=settings.SILENT)
        # An admin client's list_consumer_group_offsets crashes the process (librdkafka 2.16, rd_kafka_cgrp_op with no
        # group) when a restarted coordinator answers that it is still loading. A consumer has a group, and is safe.
        self._reader = self._make_reader("read_committed")
        self._glancer = self._make_reader("read_uncommitted")

    def _make_reader(self, isolation: str) -> Consumer:
        own = {"group.id": self._group, "isolation.level": isolation}
        return Consumer(settings.common(self._kafka) | own, logger=settings.SILENT)

    def _note_trouble(self, error: KafkaError) -> None:
        # "All brokers are down" follows the error that says why.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._trouble = error.str()

    def _failed(self, error: KafkaError | KafkaException, doing: str) -> NotUsable | Unreachable:
        """Say what an error means, and start afresh: a client whose only broker was killed may never answer again."""
        self._client.poll(0)
        failure = of_cluster(error, doing, self._trouble)
        if isinstance(failure, Unreachable):
            self._connect()
        return failure

    def topics(
        self, names: Collection[str], pattern: str | None, known: Collection[str] = frozenset()
    ) -> dict[str, Topic]:
        """
        Describe the source topics, given by name or by a pattern that whole names match.

        Args:
            names: topics that must exist, but for those that are known.
            pattern: may match nothing yet.
            known: topics that have existed; one that is gone is left out.

        Raises:
            TopicMissing: if a topic that is not known does not exist.
        """
        if pattern is not None:
            known = names = [name for name in self._names() if re.fullmatch(pattern, name)]
        if not names:
            return {}
        described = self._client.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_SECONDS)
        found: dict[str, Topic] = {}
        for name, future in described.items():
            try:
                found[name] = self._topic(name, future)
            except TopicMissing:
                if name not in known:
                    raise
        return found

    def _names(self) -> list[str]:
        try:
            return sorted(self._client.list_topics(timeout=ANSWER_SECONDS).topics)
        except KafkaException as error:
            raise self._failed(error, "listing topics") from error

    def _topic(self, name: str, future: Future[Any]) -> Topic:
        described = self._answer(
            future,
            f"describing topic {name!r}",
            missing=f"topic {name!r} does not exist: create it, or correct the configuration",
        )
        return Topic(name, str(described.topic_id or ""), len(described.partitions))

    def destination(self, name: str) -> Destination:
        """
        Describe a topic that we write to.

        Raises:
            TopicMissing: if it does not exist.
        """
        topic = self.topics([name], None)[name]
        return Destination(name, topic.partitions, self._max_bytes(name))

    def _max_bytes(self, name: str) -> int:
        resource = ConfigResource(ResourceType.TOPIC, name)
        described = self._client.describe_configs([resource], request_timeout=ANSWER_SECONDS)
        try:
            return int(self._await(described[resource])["max.message.bytes"].value)
        except KafkaException as error:
            if error_of(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return USUAL_MAX_BYTES
            raise self._failed(error, f"reading the configuration of topic {name!r}") from error

    def watermarks(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int, int]]:
        """Ask for the first offset, the last stable offset and the high watermark of each partition."""
        wanted = list(partitions)
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        low = self._offsets(wanted, earliest, IsolationLevel.READ_UNCOMMITTED)
        stable = self._offsets(wanted, latest, IsolationLevel.READ_COMMITTED)
        high = self._offsets(wanted, latest, IsolationLevel.READ_UNCOMMITTED)
        return {partition: (low[partition], stable[partition], high[partition]) for partition in wanted}

    def offsets_at(self, partitions: Iterable[Partition], milliseconds: int) -> dict[Partition, int | None]:
        """Ask for the first offset written at or after a time; None where there is none yet."""
        found = self._offsets(list(partitions), OffsetSpec.for_timestamp(milliseconds), IsolationLevel.READ_COMMITTED)
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def _offsets(
        self, partitions: list[Partition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[Partition, int]:
        if not partitions:
            return {}
        asked = self._client.list_offsets(
            {TopicPartition(*partition): spec for partition in partitions},
            isolation_level=isolation,
            request_timeout=ANSWER_SECONDS,
        )
        return {
            Partition(at.topic, at.partition): self._answer(
                future, f"reading the offsets of {at.topic}-{at.partition}"
            ).offset
            for at, future in asked.items()
        }

    def committed(self, partitions: Iterable[Partition], *, settled: bool = True) -> dict[Partition, CommittedOffset]:
        """
        Read the group's offsets.

        Args:
            partitions: whose.
            settled: wait for transactions that are about to move one (KIP-447). While hundreds of partitions commit
                there is always one.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        try:
            found = (self._reader if settled else self._glancer).committed(wanted, ANSWER_SECONDS)
        except KafkaException as error:
            raise self._failed(error, f"reading the offsets of group {self._group!r}") from error
        for at in found:
            if at.error is not None:
                raise self._failed(at.error, f"reading the group's offset of {at.topic}-{at.partition}")
        return {
            Partition(at.topic, at.partition): CommittedOffset(at.offset, at.metadata or "")
            for at in found
            if at.offset >= 0
        }

    def refuse_foreign_members(self) -> None:
        """
        Make sure that nobody else consumes in our group: the broker would let both commit, and records be skipped.

        Raises:
            ForeignMember: naming who does.
        """
        asked = self._client.describe_consumer_groups([self._group], request_timeout=ANSWER_SECONDS)
        try:
            members = self._await(asked[self._group]).members
        except KafkaException as error:
            if error_of(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
                return
            raise self._failed(error, f"describing group {self._group!r}") from error
        if members:
            who = ", ".join(f"{member.client_id} on {member.host}" for member in members)
            msg = (
                f"group {self._group!r} has members that are not Winnow ({who}): stop them, or choose another group.id"
            )
            raise ForeignMember(msg)

    def fence(self, partitions: Iterable[Partition], transaction_seconds: float) -> bool:
        """
        Shut out whoever owns these partitions, and end what a crash left open there; tell whether any was reached.

        A task that is fenced drops what it has not committed and reports; nothing is lost. What cannot be fenced now
        (Kafka is away) is left: the partition's next owner does it.
        """

        def shut_out(partition: Partition) -> bool:
            own = {"enable.idempotence": True} | settings.fencing(self._group, transaction_seconds, partition)
            fence = Producer(settings.common(self._kafka) | own, logger=settings.SILENT)
            try:
                connect(fence, partition.topic, FENCE_SECONDS)
                fence.init_transactions(FENCE_SECONDS)
            except KafkaException:
                return False
            return True

        with ThreadPoolExecutor(FENCES_AT_ONCE, "winnow-fence") as threads:
            return any(list(threads.map(shut_out, partitions)))

    def _answer(self, future: Future[Any], doing: str, missing: str = "") -> Any:  # noqa: ANN401  # as various as the admin API
        try:
            return self._await(future)
        except KafkaException as error:
            if missing and error_of(error).code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissing(missing) from error
            raise self._failed(error, doing) from error

    def _await(self, future: Future[T]) -> T:
        try:
            return future.result(ANSWER_SECONDS * 2)
        except TimeoutError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error  # noqa: SLF001
