"""
Every error that an operator may see. Each says what happened, where, and what to do.

Whatever asks Kafka or an offset store may raise Unreachable and NotUsable. Docstrings name only other errors.

    WinnowError
    ├── ConfigError          the configuration is wrong; every problem is listed at once          exit 2
    ├── NotUsable            Kafka or Spark cannot be used as they are                            exit 3
    │   ├── TopicMissing         a source, sink or dead-letter topic does not exist
    │   ├── NotAllowed           credentials, certificates or rights are rejected for seconds; once may be a restart
    │   ├── ForeignMember        another consumer is a member of the group
    │   ├── ForeignSink          the group's records go to another sink: choose another group.id, or reset its offsets
    │   ├── Superseded           a later run of the service works for the group and continues
    │   ├── ServiceRuns          the command needs the service to be stopped, but it is running
    │   └── SparkFailed          Spark could not start, or lost every round
    ├── Unreachable          Kafka does not answer, or files of its clients do not fit: retried, and logged every minute
    ├── ParserLost           the parser's own process was killed, failed or hangs                  exit 3
    ├── PartlySet            a command failed when it had set some offsets; it says what is left   exit 3
    ├── NotFollowed          a running service did not do in time what a command asked of it     exit 1
    ├── AccountingError      in ≠ out + dead letters: a bug; the service stops                    exit 1
    └── PartitionError       one source partition; the others continue
        ├── Fenced               another owner took the partition over: drop everything; no harm is done
        ├── Transient            retire the producer, open a new one, resume at the committed offset
        │   ├── Refused              Kafka rejects a record, which is searched for and becomes a dead letter
        │   └── Undelivered          what cannot be written now is separated from what can, and waits
        ├── Undeliverable        a partition that receives its lines has no leader; it resumes on its own
        ├── OffsetMoved          the committed offset went back or vanished after the driver planned: plan again
        └── Blocked              needs an operator; retried with each plan, so it recovers without a restart
            ├── OutOfRange           records were deleted before they were read
            ├── Truncated            the log was cut below the committed offset: the records there are or will be others
            ├── OffsetVanished       the group's offset expired or was deleted
            ├── OffsetLeftBehind     only Kafka on the source's cluster has it: sink.kafka or offsets.store is new
            ├── NoStartingOffset     starting.offsets is `error` and the group has no offset
            ├── CorruptOffset        the offset store holds something other than an offset
            ├── OffsetPending        a hanging transaction covers the group's offset, and its outcome is unknown
            ├── Leaderless           the partition has no leader, or its leader does not answer
            ├── TooManyDeadLetters   the circuit breaker; it needs another configuration or another offset
            ├── TopicGone            the topic existed at the start and was deleted
            └── TopicRecreated       the offset belongs to a deleted topic of the same name
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from app.cures import ANY, KafkaTools, choose_offset, reset, unblock
from app.model import Partition
from app.secrets import without_secrets

T = TypeVar("T")


class WinnowError(Exception):
    """
    Base of all errors; `exit_code` is the command's exit code if the error is not handled.

    Args:
        cause: what happened.
        cure: what to do about it; empty if nothing needs to be done.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, cure: str = "") -> None:
        # Clients of other systems quote URLs, which may hold a password or a token.
        self.cause = without_secrets(cause)
        self.cure = cure
        super().__init__(self.cause, cure)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the attributes: each error takes arguments of its own."""
        return type(self).__new__, (type(self), *self.args), self.__dict__

    def __str__(self) -> str:
        return f"{self.cause}: {self.cure}" if self.cure else self.cause


class ConfigError(WinnowError):
    """The configuration is wrong."""

    exit_code = 2

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = tuple(map(without_secrets, problems))
        super().__init__("\n".join(self.problems))


def built(key: str, build: Callable[[], T]) -> T:
    """Return what `build` returns; report the problems of its ValueError under the key."""
    try:
        return build()
    except ValueError as error:
        raise ConfigError(tuple(f"{key}: {problem}" for problem in str(error).splitlines())) from None


class NotUsable(WinnowError):
    """Kafka or Spark cannot be used as they are."""

    exit_code = 3


class TopicMissing(NotUsable):
    """A topic that the configuration names does not exist."""

    @classmethod
    def named(cls, name: str, tools: KafkaTools, partitions: int = 8) -> TopicMissing:
        command = tools.create_topic(name, partitions, {})
        return cls(f"topic {name!r} does not exist", f"{command}; or correct the configuration")


class NotAllowed(NotUsable):
    """Kafka rejects our credentials or certificate, or denies a right."""


class ForeignMember(NotUsable):
    """The group has a live member that is not Winnow."""


class ForeignSink(NotUsable):
    """The group's offsets are committed by a service that writes to another sink."""


class Superseded(NotUsable):
    """A run of the service that started later works for the group."""


class ServiceRuns(NotUsable):
    """A running service would overwrite, or be disturbed by, what the command does."""


class SparkFailed(NotUsable):
    """Spark could not start, or lost a round."""


class Unreachable(WinnowError):
    """Kafka does not answer."""

    exit_code = 3


class ParserLost(WinnowError):
    """The process in which the parser runs has exited or does not respond."""

    exit_code = 3


class PartlySet(WinnowError):
    """A command has set some offsets, and perhaps not others."""

    exit_code = 3


class NotFollowed(WinnowError):
    """A running service did not do in time what a command asked of it."""


class AccountingError(WinnowError):
    """A receipt does not balance: in ≠ out + dead letters."""


class PartitionError(WinnowError):
    """A problem of one source partition; its text begins with `topic-partition@offset`."""

    def __init__(self, partition: Partition, cause: str, offset: int | None = None, cure: str = "") -> None:
        super().__init__(cause, cure)
        self.partition = partition
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.partition.at(self.offset)}: {super().__str__()}"


class Fenced(PartitionError):
    """Another owner has opened this partition: this one stops and drops its open work; no data is lost."""


class Transient(PartitionError):
    """A Kafka call failed or its outcome is unknown: retire the producer and open the partition again."""


class Refused(Transient):
    """Kafka rejects a record of a transaction, and would reject it again."""


class Undelivered(Transient):
    """Records were not written or not committed; none of them is to blame."""


class Undeliverable(PartitionError):
    """A partition that receives this one's output has no leader or too few replicas; the task tries again."""


class OffsetMoved(PartitionError):
    """The committed offset went back or vanished between planning and opening."""


class Blocked(PartitionError):
    """This partition waits for an operator; the others continue."""


class OutOfRange(Blocked):
    """The committed offset is below the partition's first offset."""


class Truncated(Blocked):
    """
    The partition ends below the committed offset, or did before it grew again.

    Args:
        offset: the committed offset.
        cut: where the log ended; records from there on are newer than the committed offset.
    """

    offset: int

    def __init__(self, partition: Partition, offset: int, cut: int) -> None:
        what = f"the partition was truncated to {cut}, or the group's offset was set too high"
        cause = f"{what}: offsets {cut} to {offset - 1} are not the ones already read"
        super().__init__(partition, cause, offset, unblock(partition))
        self.cut = cut


class OffsetVanished(Blocked):
    """The group had an offset for this partition, but has none now."""


class OffsetLeftBehind(Blocked):
    """The group has an offset in Kafka on the source's cluster, but none where offsets are kept now."""


class NoStartingOffset(Blocked):
    """The group has no offset and `starting.offsets` is `error`."""


class CorruptOffset(Blocked):
    """The offset store holds something other than an offset for this partition."""

    def __init__(self, partition: Partition, cause: str, offset: int | None = None) -> None:
        super().__init__(partition, cause, offset, choose_offset(partition))


class OffsetPending(Blocked):
    """A transaction that covers the group's offset never ended, so stable reads of the offset never return."""

    def __init__(self, partition: Partition, offset: int | None = None) -> None:
        cause = "a transaction is hanging in __consumer_offsets, and its records do not show how it ended"
        end = (
            f"find it with {ANY.find_hanging('--topic __consumer_offsets')}, and abort it with the same tool; then, "
            "if its lines are readable in the sink (they start at this partition's last winnow.transaction header), "
        )
        past = f"set the offset past them: {reset(partition, '--to-offset OFFSET')}"
        super().__init__(partition, cause, offset, end + past)


class Leaderless(Blocked):
    """No broker answers for this partition, although brokers answer for others."""

    def __init__(self, partition: Partition) -> None:
        cause = "the partition has no leader, or its broker does not answer"
        super().__init__(partition, cause, cure="bring its broker back; the partition resumes on its own")


class TooManyDeadLetters(Blocked):
    """
    So many records become dead letters that the parser or its options are probably wrong.

    Only committed work counts. This is not retried: a new task would start counting again and drain more records.
    """

    def __init__(self, partition: Partition, cause: str) -> None:
        mend = (
            "fix the parser or its options and restart Winnow; to accept the dead letters, restart it with a higher "
            "dead.letters.breaker.ratio or none; to skip these records, "
        )
        super().__init__(partition, cause, cure=mend + reset(partition, "--to-offset OFFSET"))


class TopicGone(Blocked):
    """The source topic existed when the service started, and was deleted."""


class TopicRecreated(Blocked):
    """The committed offset belongs to a deleted topic of the same name."""
