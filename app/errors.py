"""
Everything that can go wrong, as an operator meets it. Each says what happened, where, and what to do.

    WinnowError
    ├── ConfigError          the configuration is wrong; every problem is listed at once          exit 2
    ├── NotUsable            Kafka or Spark cannot be worked with as they are                     exit 3
    │   ├── TopicMissing         a source, sink or dead-letter topic does not exist
    │   ├── NotAllowed           credentials, certificates or ACLs refuse us, for some seconds: once may be a restart
    │   ├── ForeignMember        somebody else consumes with our group.id
    │   ├── ForeignSink          the group's records go to another sink: choose another group.id, or reset its offsets
    │   ├── Superseded           a later run of the service works with our group.id; the later one goes on
    │   ├── ServiceRuns          the service works, and what was asked for needs it to be stopped
    │   └── SparkFailed          Spark could not start, or lost every round that it was given
    ├── Unreachable          Kafka does not answer: the service waits with a back-off and logs it each minute
    ├── AccountingError      in ≠ out + dead letters: a bug; the service stops                    exit 1
    └── PartitionError       one source partition; the others go on
        ├── Fenced               another owner took the partition over: drop everything, no harm done
        ├── Transient            retire the producer, open a new one, resume at the committed offset
        │   └── Refused              Kafka refuses a record; it is looked for, and becomes a dead letter
        ├── Undeliverable        no broker leads a partition that takes its lines; it goes on by itself
        ├── OffsetMoved          the committed offset went back or vanished after the driver planned: plan again
        └── Blocked              needs a person; retried with each plan, so it heals without a restart
            ├── OutOfRange           records were deleted before they were read
            ├── Truncated            the log was cut below the committed offset: other records stand or will stand there
            ├── OffsetVanished       the group's offset expired or was deleted
            ├── OffsetLeftBehind     only the source's cluster knows the group's offset: sink.kafka is new
            ├── NoStartingOffset     starting.offsets is `error` and the group has no offset
            ├── CorruptOffset        the offset store holds something else than an offset
            ├── OffsetPending        a transaction hangs beside the group's offset, and nobody can tell how it ended
            ├── Leaderless           no broker leads the partition now, or the one that does is silent
            ├── TooManyDeadLetters   the circuit breaker; it waits for another configuration or another offset
            ├── TopicGone            the topic was there at the start and was deleted
            └── TopicRecreated       the offset belongs to a deleted topic of the same name
"""

from __future__ import annotations

from typing import Any, ClassVar

from app.cures import ANY, KafkaTools, choose_offset, go_on, reset
from app.model import Partition
from app.secrets import without_secrets


class WinnowError(Exception):
    """
    Base of all errors; `exit_code` is what the command ends with when nobody handles it.

    Args:
        cause: what happened.
        cure: what to do about it; empty where nothing needs to be done.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, cure: str = "") -> None:
        # Other systems' clients repeat URLs, and those may hold a password or a token.
        self.cause = without_secrets(cause)
        self.cure = cure
        super().__init__(self.cause, cure)

    def __str__(self) -> str:
        return f"{self.cause}: {self.cure}" if self.cure else self.cause


class ConfigError(WinnowError):
    """The configuration is wrong."""

    exit_code = 2

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = tuple(map(without_secrets, problems))
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive the trip from an executor to the driver."""
        return type(self), (self.problems,)


class NotUsable(WinnowError):
    """Kafka or Spark cannot be worked with as they are."""

    exit_code = 3


class TopicMissing(NotUsable):
    """A topic that the configuration names does not exist."""

    @classmethod
    def named(cls, name: str, tools: KafkaTools, partitions: int = 8) -> TopicMissing:
        """Return the error of a topic, which can be created with so many partitions."""
        command = tools.create_topic(name, partitions, {})
        return cls(f"topic {name!r} does not exist", f"{command}; or correct the configuration")


class NotAllowed(NotUsable):
    """Kafka refuses us: credentials, certificates or ACLs."""


class ForeignMember(NotUsable):
    """A consumer that is not ours is a live member of our group."""


class ForeignSink(NotUsable):
    """Somebody commits our group's offsets and writes to another sink."""


class Superseded(NotUsable):
    """A run of the service that started later works with our group."""


class ServiceRuns(NotUsable):
    """A service works for the group, and what was asked for would be lost to it, or disturb it."""


class SparkFailed(NotUsable):
    """Spark could not start, or lost a round."""


class Unreachable(WinnowError):
    """Kafka does not answer."""

    exit_code = 3


class AccountingError(WinnowError):
    """A receipt in which in ≠ out + dead letters."""


class PartitionError(WinnowError):
    """Something about one source partition; its text begins with `topic-partition@offset`."""

    def __init__(self, partition: Partition, cause: str, offset: int | None = None, cure: str = "") -> None:
        super().__init__(cause, cure)
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        where = f"{self.partition}" if self.offset is None else f"{self.partition}@{self.offset}"
        return f"{where}: {super().__str__()}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive the trip from an executor to the driver."""
        return type(self), (self.partition, self.cause, self.offset, self.cure)


class Fenced(PartitionError):
    """Another owner has opened this partition: this one stops, drops what was open, and nothing is lost."""


class Transient(PartitionError):
    """The outcome of a Kafka call is unknown or bad: the producer is retired and the partition opened again."""


class Refused(Transient):
    """Kafka refuses a record of a transaction, and would refuse it again."""


class Undeliverable(PartitionError):
    """A partition that takes what comes of this one has no leader, or too few replicas; its task tries again."""


class OffsetMoved(PartitionError):
    """The committed offset went back or vanished between planning and opening."""


class Blocked(PartitionError):
    """This partition waits for a person; the others go on."""


class OutOfRange(Blocked):
    """The committed offset lies below what the partition still holds."""


class Truncated(Blocked):
    """
    The partition ends below the committed offset, or did before it grew again.

    Args:
        partition: which partition.
        offset: the committed offset.
        cut: where the log ended; what follows was not there when the offset was committed.
    """

    offset: int

    def __init__(self, partition: Partition, offset: int, cut: int) -> None:
        what = f"the partition was truncated to {cut}, or the group's offset was set too high"
        super().__init__(
            partition, f"{what}: offsets {cut} to {offset - 1} are not the ones already read", offset, go_on(partition)
        )
        self.cut = cut

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive the trip from an executor to the driver."""
        return type(self), (self.partition, self.offset, self.cut)


class OffsetVanished(Blocked):
    """The group had an offset for this partition, and has none now."""


class OffsetLeftBehind(Blocked):
    """The group has an offset on the source's cluster, and none on the sink's, where offsets are with `sink.kafka`."""


class NoStartingOffset(Blocked):
    """The group has no offset and `starting.offsets` is `error`."""


class CorruptOffset(Blocked):
    """What the offset store holds for this partition is not an offset."""

    def __init__(
        self,
        partition: Partition,
        cause: str,
        offset: int | None = None,
        cure: str = "",
    ) -> None:
        super().__init__(partition, cause, offset, cure or choose_offset(partition))


class OffsetPending(Blocked):
    """Kafka never wrote the end of a transaction beside the group's offset: no stable read of it answers any more."""

    def __init__(
        self,
        partition: Partition,
        cause: str = "a transaction is hanging in __consumer_offsets, and its records do not show how it ended",
        offset: int | None = None,
        cure: str = "",
    ) -> None:
        end = (
            f"find it with {ANY.find_hanging('--topic __consumer_offsets')}, and abort it with the same tool; then, "
            "if its lines are readable in the sink (they start at this partition's last winnow.transaction header), "
        )
        past = f"set the offset past them: {reset(partition, '--to-offset OFFSET')}"
        super().__init__(partition, cause, offset, cure or end + past)


class Leaderless(Blocked):
    """No broker answers for this partition; brokers answer for others."""

    def __init__(
        self,
        partition: Partition,
        cause: str = "the partition has no leader, or its broker does not answer",
        offset: int | None = None,
        cure: str = "bring its broker back; the partition resumes on its own",
    ) -> None:
        super().__init__(partition, cause, offset, cure)


class TooManyDeadLetters(Blocked):
    """
    So many of the records become dead letters that the parser or its options are probably wrong.

    Nothing that is not committed was sent for good. A new task would count anew, and drain more of them, so this is not
    retried.
    """

    def __init__(
        self,
        partition: Partition,
        cause: str,
        offset: int | None = None,
        cure: str = "",
    ) -> None:
        mend = (
            "fix the parser or its options and restart Winnow; to accept the dead letters, restart it with a higher "
            "dead.letters.breaker.ratio or none; to skip these records, "
        )
        super().__init__(partition, cause, offset, cure or mend + reset(partition, "--to-offset OFFSET"))


class TopicGone(Blocked):
    """The source topic was there when the service started, and does not exist any more."""


class TopicRecreated(Blocked):
    """The committed offset was written for another topic of the same name."""
